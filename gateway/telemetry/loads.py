"""What a process holds at the moment, and the most it has held."""

from typing import Protocol


class Level:
    """A number that goes up and down; changed on the event loop alone.

    Attributes:
        now: what it is.
        high: the most it has been.
    """

    __slots__ = ("high", "now")

    def __init__(self) -> None:
        self.now = 0
        self.high = 0

    def move(self, by: int) -> None:
        """Add to the number."""
        # Not by way of `set`: behind a slow client it runs twice for every batch.
        now = self.now = self.now + by
        if now > self.high:
            self.high = now

    def set(self, now: int) -> None:
        """Replace the number."""
        self.now = now
        if now > self.high:
            self.high = now


class DeliveryLoad:
    """What waits for clients over all responses.

    Attributes:
        batches: batches waiting.
        bytes: their bytes.
    """

    __slots__ = ("batches", "bytes")

    def __init__(self) -> None:
        self.batches = Level()
        self.bytes = Level()


class SocketLoad:
    """What the WebSockets of a process hold.

    Attributes:
        connections: sockets open.
        running: creates that run.
        waiting: creates that wait.
        outstanding_bytes: frames of both.
        session_bytes: histories in memory.
        controls: injects and steers that wait to be answered.
        control_bytes: their frames.
    """

    __slots__ = (
        "connections", "control_bytes", "controls", "outstanding_bytes", "running", "session_bytes", "waiting",
    )  # fmt: skip

    def __init__(self) -> None:
        self.connections = Level()
        self.running = Level()
        self.waiting = Level()
        self.outstanding_bytes = Level()
        self.session_bytes = Level()
        self.controls = Level()
        self.control_bytes = Level()


class SocketShare:
    """What one connection adds to these numbers.

    Args:
        load: those of the process.
    """

    __slots__ = ("_added", "_load")

    def __init__(self, load: SocketLoad) -> None:
        self._load = load
        self._added = (0, 0, 0)

    def set(self, running: int, waiting: int, outstanding_bytes: int) -> None:
        """Say what its creates come to now."""
        load, (running_before, waiting_before, bytes_before) = self._load, self._added
        self._added = (running, waiting, outstanding_bytes)
        if running != running_before:
            load.running.move(running - running_before)
        if waiting != waiting_before:
            load.waiting.move(waiting - waiting_before)
        load.outstanding_bytes.move(outstanding_bytes - bytes_before)


class BackgroundLoad:
    """The background responses of a process.

    Attributes:
        queued: responses that wait.
        running: responses that are made.
    """

    __slots__ = ("queued", "running")

    def __init__(self) -> None:
        self.queued = Level()
        self.running = Level()


class StorageLoad:
    """What waits to be written to the database.

    Attributes:
        entries: responses and deletions that wait or are being committed.
        bytes: their bytes.
    """

    __slots__ = ("bytes", "entries")

    def __init__(self) -> None:
        self.entries = Level()
        self.bytes = Level()


class ToolLoad:
    """What the gateway's own tools do over all responses.

    Attributes:
        running: calls and listings that run.
        waiting: those that wait for their turn.
    """

    __slots__ = ("running", "waiting")

    def __init__(self) -> None:
        self.running = Level()
        self.waiting = Level()


class CallLoad(Protocol):
    """The calls of one inference server."""

    @property
    def running(self) -> Level:
        """Calls that run."""
        ...

    @property
    def waiting(self) -> Level:
        """Calls that wait for their turn."""
        ...
