"""The failures of late, for people who ask what goes wrong."""

import re
import time
from collections import deque

from gateway.telemetry.logs import request_id_var, response_id_var
from gateway.telemetry.status import LAST_ERRORS, LastError

# What an inference server calls its errors is its own affair, and could hold anything.
_PLAIN_CODE = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_FOREIGN_CODE = "upstream"


class LastErrors:
    """Remembers the newest failures, without a word of what anybody sent. For the event loop's thread alone."""

    def __init__(self) -> None:
        self._kept: deque[LastError] = deque(maxlen=LAST_ERRORS)

    def note(self, route: str, status: int, code: str) -> None:
        """Remember a failure of the request and response at hand.

        Args:
            route: the route's template, `sse` or `websocket`, as in `LastError`.
            status: the HTTP status, or the one it would be.
            code: of the error.
        """
        self._kept.append(
            LastError(
                time=time.time(),
                request_id=request_id_var.get() or "",
                response_id=response_id_var.get(),
                route=route,
                status=status,
                code=code if _PLAIN_CODE.fullmatch(code) else _FOREIGN_CODE,
            )
        )

    def list(self) -> tuple[LastError, ...]:
        """Return them, newest first."""
        return tuple(reversed(self._kept))
