"""What the endpoint of WebSockets needs of a connection."""

from collections.abc import Callable, Sequence
from typing import Protocol

from litestar.types import WebSocketScope

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

    @property
    def left_first(self) -> bool:
        """Whether it was the client who ended the connection, by its Close or without one."""
        ...

    async def read(self, take: Callable[[str], bool] | None = None) -> str | bytes | None:
        """Return the next message that is not taken, or None once the connection is closed or lost.

        Args:
            take: may be offered text messages in the moment they come, if none waits before them; tells whether it took
                one, as the reader would have. It runs outside of any task.
        """
        ...

    def write(self, payloads: Sequence[bytes]) -> bool:
        """Write each payload, which is UTF-8, as one text frame; False, and nothing written, when all is over.

        It never waits and never refuses for slowness: whoever writes holds back while `write_paused`.
        """
        ...

    async def close(self, code: int, reason: str = "") -> None:
        """Send what was written, then Close, and wait until the connection is gone, for a bounded time.

        Args:
            code: code of the Close frame.
            reason: its reason, at most 123 bytes.
        """
        ...

    def watch(self, left: Callable[[], object] | None, ready: Callable[[], object] | None = None) -> None:
        """Call back when nobody reads any more, and when the client has caught up; None ends the watch.

        Args:
            left: called once when the connection is lost, closed by the client or failed, at once if it is.
            ready: called each time `write_paused` ends; it may write.
        """
        ...


def find_socket(scope: WebSocketScope) -> ClientSocket:
    """Return the socket of a WebSocket, which the gateway's own server lends."""
    return (scope.get("extensions") or {})[SOCKET_EXTENSION]  # type: ignore[return-value]
