"""One HTTP request as the server hands it to the app, with a client that does what a test says."""

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from harness.timers import list_timers

from gateway.ports import LOCAL
from gateway.transport.connection import CONNECTION_EXTENSION


def timers() -> list[asyncio.TimerHandle]:
    """Timers the gateway has set and not cancelled."""
    return [timer for timer in list_timers() if timer._callback.__module__.startswith("gateway.")]


class SlowSocket:
    """The transport of a connection.

    Attributes:
        buffered: bytes waiting in it; one list entry per look, the last one stays.
        looks: how often somebody looked.
        aborted: set once the connection was aborted.
    """

    def __init__(self, buffered: Iterable[int]) -> None:
        self.buffered = deque(buffered)
        self.looks = 0
        self.aborted = asyncio.Event()

    def get_write_buffer_size(self) -> int:
        self.looks += 1
        return self.buffered.popleft() if len(self.buffered) > 1 else self.buffered[0]

    def abort(self) -> None:
        self.aborted.set()


class Conversation:
    """A request and what is answered.

    Args:
        body: the request body, in the chunks in which it arrives; an event is waited for, None hangs up.
        headers: request headers.
    """

    def __init__(
        self,
        *body: bytes | asyncio.Event | None,
        headers: Iterable[tuple[bytes, bytes]] = (),
    ) -> None:
        self.scope: dict[str, Any] = {
            "type": "http",
            "headers": list(headers),
            "state": {"identity": LOCAL},
            "extensions": {CONNECTION_EXTENSION: self},
        }
        self.sent: list[dict[str, Any]] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self.gone = asyncio.Event()
        self.waiting = deque(body)
        self._arrived = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._ready: Callable[[], object] | None = None

    async def receive(self) -> dict[str, Any]:
        while self.waiting:
            chunk = self.waiting.popleft()
            if chunk is None:
                self.gone.set()
            elif isinstance(chunk, bytes):
                return {"type": "http.request", "body": chunk, "more_body": bool(self.waiting)}
            else:
                await chunk.wait()
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        """As the server does: waits while the client does not read, and takes everything once it is gone."""
        self._note(message)
        waits = [asyncio.ensure_future(event.wait()) for event in (self.reads, self.gone)]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        await asyncio.wait(waits)

    # ------------------------------------------------------------ the connection that the server lends

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def take_body(self) -> None:
        """The body is to be received."""

    def write_body(self, body: bytes, *, last: bool = False) -> bool:
        if not (self.reads.is_set() or self.gone.is_set()):
            return False
        self._note({"type": "http.response.body", "body": body, "more_body": not last})
        return True

    def watch(self, left: Callable[[], object] | None, ready: Callable[[], object] | None = None) -> None:
        self._ready = ready
        if self._watching is not None:
            self._watching.cancel()
        self._watching = asyncio.create_task(self._tell(left)) if left is not None else None

    async def _tell(self, left: Callable[[], object]) -> None:
        await self.gone.wait()
        left()

    def read_on(self) -> None:
        """Let the client read again."""
        self.reads.set()
        if self._ready is not None:
            self._ready()

    def _note(self, message: dict[str, Any]) -> None:
        self.sent.append(message)
        self._arrived.set()

    async def until_sent(self, part: bytes) -> None:
        """Wait until a part of the answer's body was sent."""
        while part not in self.body:
            self._arrived.clear()
            await self._arrived.wait()

    async def serve(self, app: Any) -> None:
        """Let the app answer; nothing of it may be left running."""
        before = asyncio.all_tasks()
        try:
            await app(self.scope, self.receive, self.send)
        finally:
            await asyncio.sleep(0)
            assert asyncio.all_tasks() <= before | {asyncio.current_task()}
            assert timers() == []

    # ------------------------------------------------------------ the answer

    @property
    def status(self) -> int:
        return self.sent[0]["status"]

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def bodies(self) -> list[bytes]:
        return [message["body"] for message in self.sent if message["type"] == "http.response.body"]

    @property
    def body(self) -> bytes:
        return b"".join(self.bodies)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def complete(self) -> bool:
        return bool(self.sent) and self.sent[-1].get("more_body") is False

    @property
    def left(self) -> bool:
        """Whether the app noted that the client left."""
        return self.scope["state"].get("client_left", False)
