"""Items as they are stored."""

from functools import partial
from typing import Any

from gateway.ports import Ids, StoredItem
from gateway.protocol.ids import prefix_of


def build_stored_item(ids: Ids, role: str, item: Any, data: bytes) -> StoredItem:
    """Return an item as it is stored.

    Args:
        ids: mints an id where the item came without one.
        role: what the item is to its response.
        item: the item, a Struct or an object.
        data: its JSON.
    """
    is_dict = isinstance(item, dict)
    read = item.get if is_dict else partial(getattr, item)
    kind = str(item["type"] if is_dict else item.__struct_config__.tag)
    return StoredItem(
        role=role,
        type=kind,
        id=_text(read("id", None)) or ids.mint(prefix_of(kind)),
        call_id=_text(read("call_id", None)),
        status=_text(read("status", None)),
        data=data,
    )


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
