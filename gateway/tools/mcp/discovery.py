"""Asks a server for its tools, page by page."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol

from gateway.protocol import codec
from gateway.tools.mcp.exchange import Allowance, Exchange, ServerFault

_MOST_PAGES: Final = 64
_MOST_DEPTH: Final = 64
_LIMIT: Final = "mcp.list_timeout_seconds"


class Requests(Protocol):
    """Whom requests are sent to."""

    async def request(
        self, method: str, params: dict[str, Any], *, timeout: float, bound: str, exchange: Exchange
    ) -> dict[str, Any]:
        """Send one and return its result; raises ServerFault."""
        ...


async def fetch_tools(
    server: Requests, allowance: Allowance, timeout: float, meta: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Return the tools of a server as it words them, of all its pages.

    Args:
        server: whom to ask.
        allowance: what their bytes are taken from.
        timeout: limit for all pages, in seconds.
        meta: sent with each request, for traces.

    Raises:
        ServerFault: it did not list them, listed too much, or did not come to an end.
    """
    now = asyncio.get_running_loop().time
    deadline = now() + timeout
    tools: list[dict[str, Any]] = []
    cursors: set[str] = set()
    params: dict[str, Any] = {"_meta": dict(meta)}
    for _ in range(_MOST_PAGES):
        exchange = Exchange(allowance)
        left = max(deadline - now(), 0)
        try:
            page = await server.request("tools/list", params, timeout=left, bound=_LIMIT, exchange=exchange)
        except ServerFault as fault:
            if fault.bound == _LIMIT:
                raise ServerFault(f"did not list its tools within {timeout:g} s", bound=_LIMIT) from None
            raise
        page = _read_page(page, None if exchange.counted else allowance)
        listed, cursor = page.get("tools"), page.get("nextCursor")
        if not isinstance(listed, list):
            raise ServerFault("gave an answer that is not of the protocol")
        tools += (tool for tool in listed if isinstance(tool, dict))
        if not isinstance(cursor, str):
            return tools
        if cursor in cursors:
            raise ServerFault("lists the same page of tools again and again")
        cursors.add(cursor)
        params = {**params, "cursor": cursor}
    raise ServerFault(f"spreads its tools over more than {_MOST_PAGES} pages")


def _read_page(page: dict[str, Any], allowance: Allowance | None) -> dict[str, Any]:
    """Return a page as it can be kept: what is passed on is stored, and must be readable again."""
    encoded = codec.encode(page)
    if allowance is not None:
        allowance.take(len(encoded))
    try:
        read: dict[str, Any] = codec.decode(encoded, max_depth=_MOST_DEPTH)
    except ValueError:
        raise ServerFault(f"describes its tools in more than {_MOST_DEPTH} levels") from None
    return read
