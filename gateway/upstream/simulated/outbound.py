"""The sending half of one ASGI exchange."""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Send = Callable[[Message], Awaitable[None]]

_PIECE_BYTES = 64 * 1024


class Outbound:
    """Sends one answer. An answer that is begun and never finished makes the server cut the connection."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False

    async def begin(
        self, status: int, content_type: str, *, length: int | None = None, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send the head; without a length the body is chunked."""
        fields = {"content-type": content_type, **{name.lower(): value for name, value in (headers or {}).items()}}
        if length is not None:
            fields["content-length"] = str(length)
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in fields.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})
        self.begun = True

    async def write(self, data: bytes) -> None:
        """Send a piece of the body."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def finish(self) -> None:
        """End the body."""
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def send_whole(
        self, status: int, content_type: str, body: bytes, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a whole answer of known length."""
        await self.begin(status, content_type, length=len(body), headers=headers)
        for start in range(0, len(body), _PIECE_BYTES):
            await self.write(body[start : start + _PIECE_BYTES])
        await self.finish()

    async def send_half(
        self, status: int, content_type: str, body: bytes, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Promise a body and send only its first half."""
        await self.begin(status, content_type, length=len(body), headers=headers)
        await self.write(body[: len(body) // 2])
