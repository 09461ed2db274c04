"""What a stored response was asked: its own input as a list that is read page by page."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from msgspec import Struct

from gateway.ports import StoredItem, StoredResponse
from gateway.protocol import codec
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.ids import prefix_of
from gateway.protocol.items import CLIENT_CALLS, CLIENT_OUTPUTS
from gateway.protocol.response import ItemList

_DIGEST_BYTES = 16
# What always has a status where the API returns it, though callers may leave it out.
_WITH_STATUS = frozenset({"message", *CLIENT_CALLS, *CLIENT_OUTPUTS})


class Page(Struct, frozen=True, kw_only=True):
    """Which part of a list is asked for.

    Attributes:
        after: id of the item before the first one wanted, in the order asked for; None starts at the beginning.
        limit: most items in the page.
        order: `asc` is the order in which the items were sent, `desc` the reverse.
    """

    after: str | None = None
    limit: int = 20
    order: Literal["asc", "desc"] = "desc"


def list_input_items(response: StoredResponse, page: Page) -> ItemList:
    """Return one page of the response's input items as the API's list object.

    Raises:
        InvalidRequest: the list has no item of the id in `after`.
    """
    items = list(_name_apart(response))
    if page.order == "desc":
        items.reverse()
    start = _find_start([name for name, _ in items], page.after)
    data = [present_item(name, item) for name, item in items[start : start + page.limit]]
    return ItemList(
        data=data,
        first_id=data[0]["id"] if data else None,
        last_id=data[-1]["id"] if data else None,
        has_more=start + page.limit < len(items),
    )


def _name_apart(response: StoredResponse) -> Iterator[tuple[str, StoredItem]]:
    """Give each input item an id of its own, since callers page by it and may have sent the same id twice.

    The first item of an id keeps it. The others get one made from their place, the same each time.
    """
    taken = {item.id for item in response.items}
    seen: set[str] = set()
    for position, item in enumerate(response.items):
        if item.role != "input":
            continue
        name, attempt = item.id, 0
        while name in seen or (attempt and name in taken):
            name = _derive_id(item.type, response.id, position, attempt)
            attempt += 1
        seen.add(name)
        yield name, item


def _derive_id(kind: str, *place: object) -> str:
    digest = hashlib.blake2b(repr(place).encode("utf-8", "surrogatepass"), digest_size=_DIGEST_BYTES).hexdigest()
    return f"{prefix_of(kind)}_{digest}"


def _find_start(names: Sequence[str], after: str | None) -> int:
    if after is None:
        return 0
    try:
        return names.index(after) + 1
    except ValueError:
        raise InvalidRequest(
            f"The response has no input item with id '{after[:128]}'; page on with the id of an item that was listed.",
            code="item_not_found",
            param="after",
        ) from None


def present_item(name: str, item: StoredItem) -> dict[str, Any]:
    """Return an item as lists have it, under the given id."""
    fields: dict[str, Any] = codec.decode(item.data, max_depth=None)
    fields["id"] = name
    if item.type in _WITH_STATUS:
        fields.setdefault("status", "completed")
    if item.type == "message":
        fields["content"] = _as_parts(fields["role"], fields["content"])
    return fields


def _as_parts(role: str, content: Any) -> Any:
    """Write out content that was sent as a plain string."""
    if not isinstance(content, str):
        return content
    if role == "assistant":
        return [{"type": "output_text", "text": content, "annotations": []}]
    return [{"type": "input_text", "text": content}]
