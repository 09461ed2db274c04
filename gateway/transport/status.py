"""What operators are shown: the status, for people and for programs, and the configuration in effect."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from litestar import MediaType, Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery

from gateway.protocol.errors import InvalidRequest
from gateway.telemetry.status import Status
from gateway.transport.status_page import POLICY, render_status

StatusSource = Callable[[], Awaitable[Status]]
"""Returns what the process, or several together, tell now."""

ConfigSource = Callable[[], Mapping[str, Any]]
"""Returns the configuration in effect as it may be shown, `value` and `origin` by dotted path."""

_REFRESH_SECONDS = 5
_LONGEST_REFRESH_SECONDS = 3600
_NEVER_STORED = {"cache-control": "no-store"}


@get("/status.json")
async def show_status(read_status: NamedDependency[StatusSource]) -> Response[bytes]:
    """Return the status for programs."""
    return _send_json(msgspec.json.encode(await read_status()))


@get(["/", "/status"])
async def show_status_page(
    read_status: NamedDependency[StatusSource], refresh: FromQuery[int] = _REFRESH_SECONDS
) -> Response[str]:
    """Return the status for people; `?refresh=` tells after how many seconds their browser asks again, 0 for never."""
    if not 0 <= refresh <= _LONGEST_REFRESH_SECONDS:
        raise InvalidRequest(
            f"Invalid 'refresh': write 0 to {_LONGEST_REFRESH_SECONDS} seconds; 0 never asks again.", param="refresh"
        )
    page = render_status(await read_status(), refresh=refresh)
    headers = {"content-security-policy": POLICY, "x-content-type-options": "nosniff", **_NEVER_STORED}
    return Response(page, media_type=MediaType.HTML, headers=headers)


@get("/config", sync_to_thread=True)
def show_config(read_config: NamedDependency[ConfigSource]) -> Response[bytes]:
    """Return the configuration in effect; secrets are redacted."""
    return _send_json(msgspec.json.format(msgspec.json.encode(read_config())))


def _send_json(body: bytes) -> Response[bytes]:
    return Response(body, media_type="application/json", headers=_NEVER_STORED)
