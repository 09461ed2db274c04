"""The routes of conversations."""

from typing import Any, Final

from litestar import HttpMethod, Request, Response, delete, get, post, route
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath

from gateway.transport.bodies import BodiesDependency
from gateway.transport.paging import read_page
from gateway.transport.routes import EngineDependency, answer_json, find_principal

CONVERSATIONS_PATH = "/v1/conversations"
CONVERSATION_PATH = CONVERSATIONS_PATH + "/{conversation_id:str}"
ITEMS_PATH = CONVERSATION_PATH + "/items"
ITEM_PATH = ITEMS_PATH + "/{item_id:str}"


@post(CONVERSATIONS_PATH, status_code=200)
async def create_conversation(
    request: Request[Any, Any, Any], engine: EngineDependency, bodies: BodiesDependency
) -> Response[bytes]:
    """Begin a conversation, empty or with up to 20 items."""
    body = await bodies.read(request)
    return answer_json(await engine.conversations.create(find_principal(request), body))


@get(CONVERSATION_PATH)
async def retrieve_conversation(
    request: Request[Any, Any, Any], engine: EngineDependency, conversation_id: FromPath[str]
) -> Response[bytes]:
    """Return one of the caller's conversations, without its items."""
    return answer_json(await engine.conversations.retrieve(find_principal(request), conversation_id))


@post(CONVERSATION_PATH, status_code=200)
async def update_conversation(
    request: Request[Any, Any, Any],
    engine: EngineDependency,
    bodies: BodiesDependency,
    conversation_id: FromPath[str],
) -> Response[bytes]:
    """Replace the metadata of a conversation as a whole."""
    body = await bodies.read(request)
    return answer_json(await engine.conversations.update(find_principal(request), conversation_id, body))


@delete(CONVERSATION_PATH, status_code=200)
async def delete_conversation(
    request: Request[Any, Any, Any], engine: EngineDependency, conversation_id: FromPath[str]
) -> Response[bytes]:
    """Hide one of the caller's conversations; responses that were made in it stay."""
    return answer_json(await engine.conversations.delete(find_principal(request), conversation_id))


@post(ITEMS_PATH, status_code=200)
async def add_items(
    request: Request[Any, Any, Any],
    engine: EngineDependency,
    bodies: BodiesDependency,
    conversation_id: FromPath[str],
) -> Response[bytes]:
    """Put up to 20 items at the end of a conversation, and return these."""
    body = await bodies.read(request)
    return answer_json(await engine.conversations.add(find_principal(request), conversation_id, body))


@get(ITEMS_PATH)
async def list_items(
    request: Request[Any, Any, Any], engine: EngineDependency, conversation_id: FromPath[str]
) -> Response[bytes]:
    """Return a page of a conversation's items, whole: what `include[]` could ask for is in them."""
    page = read_page(request.query_params)
    return answer_json(await engine.conversations.items(find_principal(request), conversation_id, page))


@get(ITEM_PATH)
async def retrieve_item(
    request: Request[Any, Any, Any], engine: EngineDependency, conversation_id: FromPath[str], item_id: FromPath[str]
) -> Response[bytes]:
    """Return one item of a conversation."""
    return answer_json(await engine.conversations.item(find_principal(request), conversation_id, item_id))


@delete(ITEM_PATH, status_code=200)
async def delete_item(
    request: Request[Any, Any, Any], engine: EngineDependency, conversation_id: FromPath[str], item_id: FromPath[str]
) -> Response[bytes]:
    """Take an item out of a conversation, and return the conversation."""
    return answer_json(await engine.conversations.remove(find_principal(request), conversation_id, item_id))


@route(CONVERSATION_PATH, http_method=HttpMethod.OPTIONS, status_code=204)
async def name_conversation_methods() -> Response[None]:
    """Name what a conversation takes."""
    return Response(None, headers={"allow": "DELETE, GET, OPTIONS, POST"})


@route(ITEMS_PATH, http_method=HttpMethod.OPTIONS, status_code=204)
async def name_items_methods() -> Response[None]:
    """Name what the items of a conversation take."""
    return Response(None, headers={"allow": "GET, OPTIONS, POST"})


@route(ITEM_PATH, http_method=HttpMethod.OPTIONS, status_code=204)
async def name_item_methods() -> Response[None]:
    """Name what an item of a conversation takes."""
    return Response(None, headers={"allow": "DELETE, GET, OPTIONS"})


CONVERSATION_ROUTES: Final[tuple[HTTPRouteHandler, ...]] = (
    *(name_conversation_methods, name_items_methods, name_item_methods),
    *(create_conversation, retrieve_conversation, update_conversation, delete_conversation),
    *(add_items, list_items, retrieve_item, delete_item),
)
"""Every route of conversations; a path's own OPTIONS come first, or the framework gives it one."""
