"""The query parameters by which lists are read page by page."""

from collections.abc import Mapping

from gateway.engine.input_items import Page
from gateway.protocol.errors import InvalidRequest

MAX_PAGE = 100


def read_page(query: Mapping[str, str]) -> Page:
    """Return the page that `after`, `limit` and `order` ask for; other parameters are let through.

    Raises:
        InvalidRequest: names the parameter at fault.
    """
    page = Page()
    limit, order = query.get("limit", str(page.limit)), query.get("order", page.order)
    # More digits than any limit has; int() would also take signs, spaces and underscores.
    if not (limit.isascii() and limit.isdigit() and len(limit) < 10 and 1 <= int(limit) <= MAX_PAGE):
        raise InvalidRequest(f"'limit' must be a number from 1 to {MAX_PAGE}.", code="invalid_value", param="limit")
    if order not in {"asc", "desc"}:
        raise InvalidRequest("'order' must be asc or desc.", code="invalid_value", param="order")
    return Page(after=query.get("after") or None, limit=int(limit), order="asc" if order == "asc" else "desc")
