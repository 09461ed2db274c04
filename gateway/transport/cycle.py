"""One request and its answer, as uvicorn has them; streams begin in fewer steps."""

from typing import Any, Final

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

# Headers that say nothing of how the body is framed, and whose names need no look.
_PLAIN: Final = frozenset(
    {
        *(b"date", b"content-type", b"cache-control", b"vary", b"x-accel-buffering", b"x-request-id"),
        *(b"x-ratelimit-limit-requests", b"x-ratelimit-remaining-requests", b"x-ratelimit-reset-requests"),
        b"x-gateway-unsupported-tools",
    }
)
# What no value may hold.
_CONTROLS: Final = bytes({*range(0x20), 0x7F} - {0x09})
_OK: Final = 200


class Cycle(RequestResponseCycle):
    """Sends what the app says.

    Most heads are those of streams: the same few headers, a body in chunks. uvicorn looks at every one by itself.
    """

    async def send(self, message: ASGISendEvent) -> None:
        """Send the head of the answer, or a part of its body."""
        head = None
        if not (self.response_started or self.disconnected or self.flow.write_paused or self.access_log):
            head = self._compose(message)
        if head is None:
            await super().send(message)
            return
        self.response_started, self.waiting_for_100_continue = True, False
        self.chunked_encoding = True
        self.transport.write(head)

    def _compose(self, message: Any) -> bytes | None:
        """Return the head of an answer in chunks that has nothing but plain headers, None for all others."""
        if message["type"] != "http.response.start" or message["status"] != _OK or self.scope["method"] == "HEAD":
            return None
        lines: list[bytes] = []
        for name, value in (*self.default_headers, *message.get("headers", ())):
            if name not in _PLAIN:
                return None
            lines.append(name + b": " + value)
        if not self.keep_alive:
            lines.append(b"connection: close")
        lines.append(b"transfer-encoding: chunked\r\n\r\n")
        head = b"\r\n".join(lines)
        # Every line has its end, and nothing else of this kind.
        if len(head) - len(head.translate(None, _CONTROLS)) != 2 * len(lines) + 2:
            return None
        return STATUS_LINE[_OK] + head
