"""What a principal has stored, as the engine works with it."""

from collections.abc import Sequence
from typing import Any

from gateway.ports import History, Store, StoredItem, StoredResponse
from gateway.protocol import codec
from gateway.protocol.errors import InvalidRequest, PreviousResponseNotFound, ResponseNotFound
from gateway.protocol.inputs import refuse_replay
from gateway.protocol.items import TREE_TYPES


class Archive:
    """Finds what requests refer to, or says by which error that it is not there.

    Every method raises StorageUnavailable when the database does not answer.

    Args:
        store: durable responses.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def load(self, principal: str, response_id: str) -> StoredResponse:
        """Return one response.

        Raises:
            ResponseNotFound: the principal has no such response.
        """
        stored = await self._store.response(principal, response_id)
        if stored is None:
            raise ResponseNotFound(response_id)
        return stored

    async def load_history(self, principal: str, response_id: str) -> History:
        """Return what a continuation of a response replays, or the agents that go on.

        Raises:
            PreviousResponseNotFound: the principal has no such response.
            InvalidRequest: it is still being made.
        """
        history = await self._store.history(principal, response_id)
        if history is None:
            if await self._store.holds(principal, response_id):
                raise InvalidRequest(
                    f"Previous response with id '{response_id[:128]}' is still being made in the background; "
                    "continue it when it has ended.",
                    code="previous_response_in_progress",
                    param="previous_response_id",
                )
            raise PreviousResponseNotFound(response_id)
        return history

    async def resolve_references(self, principal: str, items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the items with what they refer to in the place of each reference.

        Raises:
            InvalidRequest: the principal has no such item.
        """
        wanted = [item["id"] for item in items if item["type"] == "item_reference"]
        if not wanted:
            return list(items)
        found = await self._store.items(principal, wanted)
        for index, item in enumerate(items):
            if item["type"] == "item_reference" and item["id"] not in found:
                raise InvalidRequest(
                    f"Item with id '{item['id'][:128]}' not found.", code="item_not_found", param=f"input[{index}].id"
                )
            if item["type"] == "item_reference" and found[item["id"]].type in TREE_TYPES:
                raise refuse_replay(found[item["id"]].type, f"input[{index}]")
        return [decode_item(found[item["id"]]) if item["type"] == "item_reference" else item for item in items]


def decode_item(item: StoredItem) -> dict[str, Any]:
    """Return a stored item as the object it is."""
    fields: dict[str, Any] = codec.decode(item.data, max_depth=None)
    return fields


def show_response(stored: StoredResponse) -> bytes:
    """Return a stored response as its caller sees it, as JSON."""
    fields: dict[str, Any] = codec.decode(stored.snapshot, max_depth=None)
    fields["output"] = [decode_item(item) for item in stored.items if item.role == "output"]
    return codec.encode(fields)
