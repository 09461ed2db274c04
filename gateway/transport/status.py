"""What operators are shown: the status, as JSON, and the configuration in effect."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec
from litestar import Response, get
from litestar.di import NamedDependency

from gateway.telemetry.status import Status

StatusSource = Callable[[], Awaitable[Status]]
"""Returns what the process, or several together, tell now."""

ConfigSource = Callable[[], Mapping[str, Any]]
"""Returns the configuration in effect as it may be shown, `value` and `origin` by dotted path."""

_NEVER_STORED = {"cache-control": "no-store"}


@get("/status.json")
async def show_status(read_status: NamedDependency[StatusSource]) -> Response[bytes]:
    """Return the status for programs."""
    return _send_json(msgspec.json.encode(await read_status()))


@get("/config")
async def show_config(read_config: NamedDependency[ConfigSource]) -> Response[bytes]:
    """Return the configuration in effect; secrets are redacted."""
    return _send_json(msgspec.json.format(msgspec.json.encode(read_config())))


def _send_json(body: bytes) -> Response[bytes]:
    return Response(body, media_type="application/json", headers=_NEVER_STORED)
