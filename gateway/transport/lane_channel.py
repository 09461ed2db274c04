"""How the events of one response leave on a lane of a WebSocket: each in a frame of its own, with the lane's name."""

from collections.abc import Callable, Sequence

from gateway.engine.delivery import EncodedEvent
from gateway.protocol.frames import reframe_error, tag
from gateway.transport.outbound import OutboundQueue

# The one event whose form depends on the transport.
_ERROR = b"error"


class LaneChannel:
    """The channel of one response on a lane.

    Args:
        queue: of the connection.
        stream_id: the name of the lane; None for the default lane.

    Attributes:
        opened: whether the client has been told of the response.
        on_open: called when it is about to be.
    """

    __slots__ = ("_queue", "_stream_id", "on_open", "opened")

    def __init__(self, queue: OutboundQueue[Sequence[bytes]], stream_id: str | None) -> None:
        self._queue = queue
        self._stream_id = stream_id
        self.opened = False
        self.on_open: Callable[[], object] | None = None

    def write(self, batch: list[EncodedEvent]) -> bool:
        """Send a batch at once, each event as a frame; False, and nothing done, when it has to be `put`."""
        return self.opened and self._queue.write(self._frame(batch))

    async def put(self, batch: list[EncodedEvent]) -> None:
        """Send a batch; waits while the queue of the connection is full."""
        if not self.opened:
            self.opened = True
            if self.on_open is not None:
                self.on_open()
        payloads = self._frame(batch)
        if not self._queue.write(payloads):
            await self._queue.put(payloads)

    # The last batch has come when it is queued, for then the lane is free.
    end = put

    def _frame(self, batch: list[EncodedEvent]) -> Sequence[bytes]:
        stream_id = self._stream_id
        payloads = [data if name != _ERROR else reframe_error(data) for name, data in batch]
        return payloads if stream_id is None else [tag(payload, stream_id) for payload in payloads]
