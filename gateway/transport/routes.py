"""The routes of the public app: the hot path as one raw ASGI handler, everything else typed."""

from pathlib import PurePosixPath
from typing import Any, Final

from litestar import HttpMethod, MediaType, Request, Response, asgi, delete, get, route
from litestar.di import NamedDependency
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException, MethodNotAllowedException
from litestar.handlers import ASGIRouteHandler, HTTPRouteHandler
from litestar.params import FromPath, SkipValidation
from litestar.types import ASGIApp, Receive, Scope, Send

from gateway.engine.replay import refuse_stream
from gateway.engine.service import Engine
from gateway.ports import Identity
from gateway.protocol.errors import InvalidRequest
from gateway.transport.background import (
    BackgroundDependency,
    EventAnswer,
    EventsDependency,
    cancel_response,
    read_start,
)
from gateway.transport.edge import STATE_IDENTITY
from gateway.transport.health import health, livez, readyz, version
from gateway.transport.paging import read_page
from gateway.transport.paths import RESPONSE_PATH, RESPONSES_PATH

_TRUE = frozenset({"true", "1"})
_FALSE = frozenset({"false", "0", ""})


EngineDependency = NamedDependency[SkipValidation[Engine]]


def build_responses_route(endpoint: ASGIApp, *, websockets: bool) -> ASGIRouteHandler:
    """Build the handler of `/v1/responses`, which a raw ASGI route gets with every method.

    Args:
        endpoint: serves POST.
        websockets: whether GET may become a WebSocket.
    """

    @asgi(RESPONSES_PATH, copy_scope=False)
    async def serve_responses(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP and scope["method"] != "POST":
            raise _refusal(scope["method"], websockets=websockets)
        await endpoint(scope, receive, send)

    return serve_responses


@get(RESPONSE_PATH)
async def retrieve_response(
    request: Request[Any, Any, Any], engine: EngineDependency, events: EventsDependency, response_id: FromPath[str]
) -> Response[bytes]:
    """Return one of the caller's stored responses, whole: what `include[]` could ask for is in it.

    The events of one that was created with `background` and `stream` can be read as a stream: those behind
    `starting_after`, or all, and those that are still to come.
    """
    query, principal = request.query_params, find_principal(request)
    stream = query.get("stream", "false").lower()
    if stream not in _TRUE | _FALSE:
        raise InvalidRequest("'stream' must be true or false, or left out.", code="invalid_value", param="stream")
    after = read_start(query)
    if stream in _FALSE:
        return answer_json(await engine.retrieve(principal, response_id))
    if not await events.check(principal, response_id):
        await engine.retrieve(principal, response_id)
        refuse_stream()
    return EventAnswer(events, response_id, after)


@delete(RESPONSE_PATH, status_code=200)
async def delete_response(
    request: Request[Any, Any, Any],
    engine: EngineDependency,
    background: BackgroundDependency,
    response_id: FromPath[str],
) -> Response[bytes]:
    """Hide one of the caller's stored responses; what continues from it stays as it is, what is being made ends."""
    deleted = await engine.delete(find_principal(request), response_id)
    background.drop(response_id)
    return answer_json(deleted)


@route(RESPONSE_PATH, http_method=HttpMethod.OPTIONS, status_code=204)
async def name_methods() -> Response[None]:
    """Name what a response takes: the framework's own answer forgets all but the first handler of a path."""
    return Response(None, headers={"allow": "DELETE, GET, OPTIONS"})


@get(RESPONSE_PATH + "/input_items")
async def list_input_items(
    request: Request[Any, Any, Any], engine: EngineDependency, response_id: FromPath[str]
) -> Response[bytes]:
    """Return a page of a stored response's own input, whole: what `include[]` could ask for is in it."""
    return answer_json(await engine.input_items(find_principal(request), response_id, read_page(request.query_params)))


@get("/v1/models")
async def list_models(engine: EngineDependency) -> Response[bytes]:
    """Return the models that can be asked for."""
    return answer_json(await engine.models())


@get("/v1/models/{model_id:path}")
async def retrieve_model(engine: EngineDependency, model_id: FromPath[PurePosixPath]) -> Response[bytes]:
    """Return one model; its id may hold slashes."""
    return answer_json(await engine.model(str(model_id).lstrip("/")))


ROUTES: Final[tuple[HTTPRouteHandler, ...]] = (
    *(name_methods, retrieve_response, delete_response, list_input_items, cancel_response),
    *(list_models, retrieve_model),
    *(livez, readyz, health, version),
)
"""Every typed route. A path's own OPTIONS must come first, or the framework gives it one."""


def find_principal(request: Request[Any, Any, Any]) -> str:
    """Return who asks."""
    identity: Identity = request.scope["state"][STATE_IDENTITY]
    return identity.principal


def answer_json(content: bytes) -> Response[bytes]:
    """Return an answer of JSON that is encoded already."""
    return Response(content, media_type=MediaType.JSON)


def _refusal(method: str, *, websockets: bool) -> HTTPException:
    if method == "GET":
        return HTTPException(
            status_code=426,
            detail="GET is for WebSockets, and this is no upgrade to one; to create a response over HTTP, use POST."
            if websockets
            else "WebSockets are switched off ([websocket] enabled); to create a response, use POST.",
            headers={"Upgrade": "websocket", "Connection": "Upgrade"},
        )
    return MethodNotAllowedException(headers={"Allow": "POST, GET"})
