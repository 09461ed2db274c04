"""Builds the Litestar app of the public listener, which serves everything beside the hot path."""

from collections.abc import Sequence

from litestar import Litestar
from litestar.config.cors import CORSConfig
from litestar.di import Provide

from gateway.app.parts import Parts
from gateway.config.schema import ServerConfig
from gateway.transport.conversation_routes import CONVERSATION_ROUTES
from gateway.transport.framework import LeanLitestar
from gateway.transport.health import DiscreetChecks
from gateway.transport.openapi.docs import DOCS_ROUTES, ApiDocs
from gateway.transport.routes import ROUTES, build_responses_route
from gateway.transport.wire_errors import respond_with_error

_EXPOSED = [
    *("x-request-id", "retry-after", "x-should-retry"),
    *("x-ratelimit-limit-requests", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
]


def build_litestar(parts: Parts, server: ServerConfig) -> Litestar:
    """Build the app from the parts; of the configuration it takes the origins of pages at its making only."""
    needs_key = parts.config.auth.mode != "none"
    docs = ApiDocs(needs_key=needs_key)
    readiness = DiscreetChecks(parts.readiness) if needs_key else parts.readiness
    return LeanLitestar(
        route_handlers=[
            build_responses_route(parts.endpoint, websockets=parts.config.websocket.enabled),
            *parts.standalone.build_routes(),
            *ROUTES,
            *CONVERSATION_ROUTES,
            *map(parts.relay.build_route, sorted(parts.config.passthrough_paths())),
            *(DOCS_ROUTES if parts.config.server.openapi else ()),
        ],
        dependencies={
            "background": Provide(lambda: parts.background, sync_to_thread=False),
            "bodies": Provide(lambda: parts.bodies, sync_to_thread=False),
            "docs": Provide(lambda: docs, sync_to_thread=False),
            "engine": Provide(lambda: parts.engine, sync_to_thread=False),
            "events": Provide(lambda: parts.events, sync_to_thread=False),
            "readiness": Provide(lambda: readiness, sync_to_thread=False),
        },
        cors_config=_cors_config(server.allowed_origins),
        exception_handlers={Exception: respond_with_error},
        request_max_body_size=server.max_request_body_bytes,
        openapi_config=None,
        logging_config=None,
    )


def _cors_config(origins: Sequence[str]) -> CORSConfig | None:
    """Let the listed pages read answers; without any, the hot path is spared the layer."""
    if not origins:
        return None
    return CORSConfig(allow_origins=list(origins), expose_headers=_EXPOSED)
