"""An accepted chat call, read as if it had been a Responses call."""

from collections.abc import Iterable

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
        self._at_end = False
        self._breach: ResourceLimitExceeded | None = None

    @property
    def is_event_stream(self) -> bool:
        """Whether the server answered with `text/event-stream`."""
        return self._answer.is_event_stream

    async def read(self) -> bytes:
        """Return the events, or the whole object, that what has arrived stands for; `b""` at the clean end.

        Raises:
            ResourceLimitExceeded: the server sent a longer line, or a larger body, than allowed.
            UpstreamError: the body broke off.
            UpstreamTimeout: the idle or the total timeout passed.
        """
        if not self.is_event_stream:
            return await self._read_body()
        while not self._at_end:
            if self._breach is not None:
                raise self._breach
            data = await self._answer.read()
            if data:
                events = self._translate(self._decoder.feed(data))
            else:
                self._at_end = True
                events = self._translate(filter(_is_whole, self._decoder.end())) + self._stream.end()
            if events:
                return events
        if self._breach is not None:
            raise self._breach
        return b""

    def retire(self) -> None:
        """Say that the answer is complete."""
        self._answer.retire()

    async def close(self) -> None:
        """Release the connection. Idempotent."""
        await self._answer.close()

    async def _read_body(self) -> bytes:
        if self._at_end:
            return b""
        body = await self._answer.read_whole(self._max_json_bytes)
        if body is None:
            raise ResourceLimitExceeded("max_upstream_json_bytes", self._max_json_bytes)
        self._at_end = True
        return translate_body(body)

    def _translate(self, blocks: Iterable[Block]) -> bytes:
        """Return the events of what came before a line that is too long, which is told by the next read."""
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
