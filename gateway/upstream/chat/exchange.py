"""An accepted chat call, read as if it had been a Responses call."""

from collections.abc import Awaitable, Iterable

from gateway.protocol import codec
from gateway.protocol.errors import ResourceLimitExceeded
from gateway.protocol.sse import Block, SseDecoder
from gateway.upstream.chat.body import translate_body
from gateway.upstream.chat.stream import ChatStream
from gateway.upstream.exchange import HttpExchange


class ChatExchange:
    """Translates an HTTP answer while it is read; see `ports.UpstreamExchange`.

    What the server sends is held to the limits here, where its own lines and bytes are seen.

    Args:
        answer: the server's answer.
        max_line_bytes: longest line of a stream.
        max_json_bytes: largest body in one piece.
    """

    is_translated = True

    def __init__(self, answer: HttpExchange, *, max_line_bytes: int, max_json_bytes: int) -> None:
        self._answer = answer
        self._max_json_bytes = max_json_bytes
        self._decoder = SseDecoder(max_line_bytes)
        self._stream = ChatStream()
        self._body = bytearray()
        self._at_end = False
        self._breach: ResourceLimitExceeded | None = None

    @property
    def is_event_stream(self) -> bool:
        """Whether the server answered with `text/event-stream`."""
        return self._answer.is_event_stream

    def take(self) -> bytes | None:
        """Return the events, or the whole object, that what has arrived stands for; `b""` at the clean end; None: wait.

        Raises:
            ResourceLimitExceeded: the server sent a longer line, or a larger body, than allowed.
            UpstreamError: the body broke off.
            UpstreamTimeout: the idle or the total timeout passed.
        """
        while self._breach is None and not self._at_end:
            data = self._answer.take()
            if data is None:
                return None
            self._at_end = not data
            if said := self._read_events(data) if self.is_event_stream else self._read_body(data):
                return said
        if self._breach is not None:
            raise self._breach
        return b""

    def arrival(self) -> Awaitable[None]:
        """Return what is done once there may be something to take."""
        return self._answer.arrival()

    async def read(self) -> bytes:
        """Return what `take` does as soon as it returns something.

        Raises:
            ResourceLimitExceeded: as `take`.
            UpstreamError: as `take`.
        """
        while (said := self.take()) is None:
            await self.arrival()
        return said

    def retire(self) -> None:
        """Say that the answer is complete."""
        self._answer.retire()

    async def close(self) -> None:
        """Release the connection. Idempotent."""
        await self._answer.close()

    def _read_body(self, data: bytes) -> bytes:
        if not data:
            return translate_body(bytes(self._body))
        self._body += data
        if len(self._body) > self._max_json_bytes:
            self._breach = ResourceLimitExceeded("max_upstream_json_bytes", self._max_json_bytes)
        return b""

    def _read_events(self, data: bytes) -> bytes:
        if data:
            return self._translate(self._decoder.feed(data))
        return self._translate(filter(_is_whole, self._decoder.end())) + self._stream.end()

    def _translate(self, blocks: Iterable[Block]) -> bytes:
        """Return the events of what came before a line that is too long, which is told by what is taken next."""
        events: list[bytes] = []
        try:
            events += map(self._stream.feed, blocks)
        except ResourceLimitExceeded as breach:
            self._breach = breach
        return b"".join(events)


def _is_whole(block: Block) -> bool:
    """Whether the event a stream ends with, without a blank line, is more than the beginning of one."""
    try:
        codec.decode(block[1])
    except ValueError:
        return block[1].strip() == b"[DONE]"
    return True
