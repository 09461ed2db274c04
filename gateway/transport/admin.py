"""The app of the admin listener: for operators and their machines, never for callers."""

from collections.abc import Awaitable, Callable
from typing import Any

from litestar import Litestar, Request, Response, get
from litestar.di import NamedDependency, Provide
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from gateway.transport.framework import LeanLitestar
from gateway.transport.health import Checks, livez, readyz
from gateway.transport.hosts import HostPolicy
from gateway.transport.status import ConfigSource, StatusSource, show_config, show_status, show_status_page
from gateway.transport.wire_errors import respond_with_error

Exposition = Callable[[], Awaitable[bytes]]
"""Returns every metric in the Prometheus text format."""


@get("/metrics")
async def show_metrics(expose: NamedDependency[Exposition]) -> Response[bytes]:
    """Return every metric in the Prometheus text format."""
    return Response(await expose(), headers={"content-type": CONTENT_TYPE_LATEST})


def build_admin_app(
    expose: Exposition,
    readiness: Checks,
    policy: HostPolicy,
    *,
    read_status: StatusSource,
    read_config: ConfigSource,
) -> Litestar:
    """Build the admin app.

    Args:
        expose: what `/metrics` shows.
        readiness: what `/readyz` asks.
        policy: which Host and Origin headers pass.
        read_status: what `/status` shows.
        read_config: what `/config` shows.
    """

    async def keep_strangers_out(request: Request[Any, Any, Any]) -> None:
        headers = dict(request.scope["headers"])
        policy.check(headers.get(b"host"), headers.get(b"origin"))

    return LeanLitestar(
        route_handlers=[show_metrics, show_status_page, show_status, show_config, livez, readyz],
        dependencies={
            "expose": Provide(lambda: expose, sync_to_thread=False),
            "readiness": Provide(lambda: readiness, sync_to_thread=False),
            "read_status": Provide(lambda: read_status, sync_to_thread=False),
            "read_config": Provide(lambda: read_config, sync_to_thread=False),
        },
        before_request=keep_strangers_out,
        exception_handlers={Exception: respond_with_error},
        openapi_config=None,
        logging_config=None,
    )
