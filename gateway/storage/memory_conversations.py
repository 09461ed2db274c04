"""Conversations in memory, beside the store that forgets everything at the end."""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence

from msgspec import structs

from gateway.ports import (
    ConversationAddition,
    ConversationBounds,
    ConversationClaim,
    ConversationDeletion,
    ConversationTurn,
    ConversationUpdate,
    ItemPage,
    ItemRemoval,
    Lease,
    NewConversation,
    StoredConversation,
    StoredItem,
    StoredResponse,
)
from gateway.protocol.conversations import duplicate_item, refuse_size
from gateway.protocol.errors import ConversationLocked, ConversationNotFound, InvalidRequest, ItemNotFound
from gateway.storage.leases import MemoryLeases

_MOMENT_SECONDS = 60.0


class _Kept:
    """One conversation with its items."""

    def __init__(self, one: StoredConversation, items: Iterable[StoredItem]) -> None:
        self.one = one
        self.items = list(items)


class MemoryConversations:
    """`ports.ConversationStore` in a dictionary.

    Args:
        leases: what is held for a while.
        append: keeps a response.
    """

    def __init__(self, leases: MemoryLeases, append: Callable[[StoredResponse], Awaitable[None]]) -> None:
        self._leases = leases
        self._append = append
        self._kept: dict[str, _Kept] = {}

    async def create(self, new: NewConversation) -> None:
        """Keep a conversation; as `ports.ConversationStore`."""
        self._kept[new.conversation.id] = _Kept(new.conversation, new.items)

    async def find(self, principal: str, conversation_id: str) -> StoredConversation:
        """Return one conversation; as `ports.ConversationStore`."""
        return self._find(principal, conversation_id).one

    async def update(self, update: ConversationUpdate) -> StoredConversation:
        """Note something else; as `ports.ConversationStore`."""
        kept = self._find(update.principal, update.id)
        kept.one = structs.replace(kept.one, metadata=update.metadata)
        return kept.one

    async def delete(self, deletion: ConversationDeletion) -> None:
        """Forget a conversation; as `ports.ConversationStore`."""
        self._find(deletion.principal, deletion.id)
        del self._kept[deletion.id]

    async def claim(self, claim: ConversationClaim) -> None:
        """Let somebody write to a conversation; as `ports.ConversationStore`."""
        self._find(claim.principal, claim.id, param="conversation")
        self._take(claim.id, claim.lease, claim.seconds)

    async def history(self, principal: str, conversation_id: str, bounds: ConversationBounds) -> Sequence[StoredItem]:
        """Return all items; as `ports.ConversationStore`."""
        items = self._find(principal, conversation_id, param="conversation").items
        _check_size(items, bounds, param="conversation")
        return tuple(items)

    async def append(self, turn: ConversationTurn) -> None:
        """Keep a response and its items in the conversation; as `ports.ConversationStore`."""
        if not self._leases.give_up(turn.lease):
            raise ConversationLocked(turn.id)
        kept = self._find(turn.principal, turn.id, param="conversation")
        if turn.stored:
            await self._append(turn.response)
        kept.items += turn.response.items

    async def add(self, addition: ConversationAddition) -> None:
        """Put items at the end of a conversation; as `ports.ConversationStore`."""
        kept = self._find(addition.principal, addition.id)
        self._take(addition.id, addition.lease, _MOMENT_SECONDS)
        try:
            taken = {item.id for item in kept.items}
            for place, item in enumerate(addition.items):
                if item.id in taken:
                    raise duplicate_item(item.id, f"items[{place}].id")
            _check_size([*kept.items, *addition.items], addition.bounds, param="items")
            kept.items += addition.items
        finally:
            self._leases.give_up(addition.lease)

    async def remove(self, removal: ItemRemoval) -> StoredConversation:
        """Take an item out of a conversation; as `ports.ConversationStore`."""
        kept = self._find(removal.principal, removal.id)
        self._take(removal.id, removal.lease, _MOMENT_SECONDS)
        self._leases.give_up(removal.lease)
        kept.items.remove(await self.item(removal.principal, removal.id, removal.item_id))
        return kept.one

    async def item(self, principal: str, conversation_id: str, item_id: str) -> StoredItem:
        """Return one item; as `ports.ConversationStore`."""
        items = self._find(principal, conversation_id).items
        found = next((item for item in items if item.id == item_id), None)
        if found is None:
            raise ItemNotFound(item_id)
        return found

    async def page(
        self, principal: str, conversation_id: str, *, after: str | None, limit: int, descending: bool
    ) -> ItemPage:
        """Return some of the items; as `ports.ConversationStore`."""
        items = self._find(principal, conversation_id).items[:: -1 if descending else 1]
        ids = [item.id for item in items]
        if after is not None and after not in ids:
            raise InvalidRequest(
                f"The conversation has no item with id '{after[:128]}'.", code="item_not_found", param="after"
            )
        start = 0 if after is None else ids.index(after) + 1
        return ItemPage(items=items[start : start + limit], has_more=start + limit < len(items))

    def before(self, response: StoredResponse) -> Sequence[StoredItem]:
        """Return what a conversation holds before a response of it."""
        kept = self._kept.get(response.conversation_id or "")
        own = {id(item) for item in response.items}
        places = [] if kept is None else [place for place, item in enumerate(kept.items) if id(item) in own]
        return kept.items[: places[0]] if kept is not None and places else ()

    def held(self, principal: str) -> Iterator[StoredItem]:
        """Return what all conversations of a principal hold."""
        return (item for kept in self._kept.values() if kept.one.principal == principal for item in kept.items)

    def count_metadata(self, principal: str) -> int:
        """Return how many bytes a principal's metadata has."""
        return sum(len(kept.one.metadata) for kept in self._kept.values() if kept.one.principal == principal)

    def _find(self, principal: str, conversation_id: str, *, param: str | None = None) -> _Kept:
        kept = self._kept.get(conversation_id)
        if kept is None or kept.one.principal != principal:
            raise ConversationNotFound(conversation_id, param=param)
        return kept

    def _take(self, conversation_id: str, lease: Lease, seconds: float) -> None:
        if not self._leases.claim(lease, seconds):
            raise ConversationLocked(conversation_id)


def _check_size(items: Sequence[StoredItem], bounds: ConversationBounds, *, param: str) -> None:
    size = sum(len(item.data) for item in items)
    refusal = refuse_size(len(items), size, bounds.max_items, bounds.max_bytes, param=param)
    if refusal is not None:
        raise refusal
