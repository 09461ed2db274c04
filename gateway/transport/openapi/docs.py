"""The document and the page as they are served: made when they are first asked for, then kept."""

import hashlib
from functools import cached_property
from typing import Any, Final

import msgspec
from litestar import MediaType, Request, Response, get
from litestar.di import NamedDependency
from litestar.handlers import HTTPRouteHandler
from litestar.params import SkipValidation
from msgspec import Struct

from gateway.transport.conversation_routes import CONVERSATION_ROUTES
from gateway.transport.openapi.document import build_document
from gateway.transport.openapi.page import POLICY, render_page
from gateway.transport.paths import DOCUMENT_PATH, PAGE_PATH
from gateway.transport.routes import ROUTES

_DIGEST_BYTES = 16


class Content(Struct, frozen=True):
    """Something to serve, with the tag that changes with it."""

    body: bytes
    tag: str


class ApiDocs:
    """The API's description in both forms. Besides this it depends on nothing but the code.

    Args:
        needs_key: whether callers are asked who they are.
    """

    def __init__(self, *, needs_key: bool = False) -> None:
        self._needs_key = needs_key

    @cached_property
    def document(self) -> Content:
        """The OpenAPI document, as compact JSON."""
        return _seal(
            msgspec.json.encode(
                build_document((*ROUTES, *CONVERSATION_ROUTES, *DOCS_ROUTES), needs_key=self._needs_key)
            )
        )

    @cached_property
    def page(self) -> Content:
        """The same as HTML."""
        return _seal(render_page(msgspec.json.decode(self.document.body), DOCUMENT_PATH).encode())


DocsDependency = NamedDependency[SkipValidation[ApiDocs]]


@get(DOCUMENT_PATH)
async def show_document(request: Request[Any, Any, Any], docs: DocsDependency) -> Response[bytes]:
    """Describe every route, parameter, answer, event and error to programs."""
    return _serve(request, docs.document, MediaType.JSON)


@get(PAGE_PATH)
async def show_page(request: Request[Any, Any, Any], docs: DocsDependency) -> Response[bytes]:
    """Describe the same to people, on one page that needs nothing else."""
    return _serve(request, docs.page, MediaType.HTML, {"content-security-policy": POLICY})


DOCS_ROUTES: Final[tuple[HTTPRouteHandler, ...]] = (show_document, show_page)


def _seal(body: bytes) -> Content:
    return Content(body, f'"{hashlib.blake2b(body, digest_size=_DIGEST_BYTES).hexdigest()}"')


def _serve(
    request: Request[Any, Any, Any], content: Content, media: str, headers: dict[str, str] | None = None
) -> Response[bytes]:
    # Asked again each time, at the price of a few bytes: a new version of the gateway has another description.
    cached = {"etag": content.tag, "cache-control": "no-cache", "x-content-type-options": "nosniff", **(headers or {})}
    if content.tag in request.headers.get("if-none-match", ""):
        return Response(b"", status_code=304, headers=cached)
    return Response(content.body, media_type=media, headers=cached)
