"""What the endpoint of WebSockets needs of a connection, and the bounds of one."""

from collections.abc import Callable, Sequence
from typing import Protocol

from litestar.types import WebSocketScope
from msgspec import Struct

SOCKET_EXTENSION = "gateway.socket"
"""Extension in the scope of a WebSocket: the socket itself, a `ClientSocket`."""


class ClientSocket(Protocol):
    """An accepted WebSocket, around the layers of the app."""

    @property
    def write_paused(self) -> bool:
        """Whether the client has to catch up before more is written."""
        ...

    @property
    def close_code(self) -> int | None:
        """Why the connection ended: the code of whichever Close came first, 1006 without one, None before."""
        ...

    async def read(self) -> str | bytes | None:
        """Return the next message, or None once the connection is closed or lost."""
        ...

    def write(self, payloads: Sequence[bytes]) -> bool:
        """Write each payload, which is UTF-8, as one text frame; False, and nothing written, when all is over.

        It never waits and never refuses for slowness: whoever writes holds back while `write_paused`.
        """
        ...

    async def drained(self) -> bool:
        """Wait until the client has caught up; False when all is over."""
        ...

    async def close(self, code: int, reason: str = "") -> None:
        """Send what was written, then Close, and wait until the connection is gone, for a bounded time.

        Args:
            code: code of the Close frame.
            reason: its reason, at most 123 bytes.
        """
        ...

    def watch(self, left: Callable[[], object] | None) -> None:
        """Call back when nobody reads any more, at once if so: lost, closed by the client or failed; None ends it."""
        ...


class SocketSettings(Struct, frozen=True, kw_only=True):
    """The bounds of one WebSocket.

    Attributes:
        send_deadline_seconds: a client that takes no byte for so long is left.
        max_message_bytes: largest message of a client, and what may wait to be read before reading pauses.
        ping_interval_seconds: time between an answered ping and the next; 0 sends none.
        pong_timeout_seconds: how long a client may take to answer a ping.
        close_timeout_seconds: how long a client may take to answer Close.
        refuse_message: makes the last frame before Close for a message that is too large.
    """

    send_deadline_seconds: float
    max_message_bytes: int
    ping_interval_seconds: float
    pong_timeout_seconds: float
    close_timeout_seconds: float
    refuse_message: Callable[[], bytes]


def find_socket(scope: WebSocketScope) -> ClientSocket | None:
    """Return the socket of a WebSocket where the server lends it."""
    socket: ClientSocket | None = (scope.get("extensions") or {}).get(SOCKET_EXTENSION)  # type: ignore[assignment]
    return socket
