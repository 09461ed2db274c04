"""Conversations: items in an order of their own, to which one writer at a time adds."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from gateway.ports.leases import Lease
from gateway.ports.stored import StoredItem, StoredResponse


class StoredConversation(Struct, frozen=True, kw_only=True):
    """A conversation, without its items.

    Attributes:
        id: the conversation id.
        principal: owner; every read names it.
        created_at: Unix seconds.
        metadata: what its owner noted, as one JSON object, encoded.
    """

    id: str
    principal: str
    created_at: int
    metadata: bytes


class ConversationBounds(Struct, frozen=True, kw_only=True):
    """How much one conversation may hold.

    Attributes:
        max_items: items.
        max_bytes: bytes of their JSON.
    """

    max_items: int
    max_bytes: int


class ItemPage(Struct, frozen=True, kw_only=True):
    """Part of the items of a conversation.

    Attributes:
        items: in the order asked for.
        has_more: whether others follow.
    """

    items: Sequence[StoredItem]
    has_more: bool


def conversation_lease(conversation_id: str, holder: str) -> Lease:
    """Return the lease of whoever writes to a conversation."""
    return Lease(name=f"conversation/{conversation_id}", holder=holder)


class NewConversation(Struct, frozen=True, kw_only=True):
    """That a conversation begins.

    Attributes:
        conversation: it.
        items: its first items.
    """

    conversation: StoredConversation
    items: Sequence[StoredItem] = ()


class ConversationUpdate(Struct, frozen=True, kw_only=True):
    """That an owner notes something else.

    Attributes:
        id: the conversation id.
        principal: owner.
        metadata: what is noted from now on, as one JSON object, encoded.
    """

    id: str
    principal: str
    metadata: bytes


class ConversationDeletion(Struct, frozen=True, kw_only=True):
    """That an owner no longer wants a conversation.

    Attributes:
        id: the conversation id.
        principal: owner.
        at: Unix seconds.
    """

    id: str
    principal: str
    at: int


class ConversationClaim(Struct, frozen=True, kw_only=True):
    """That somebody wants to write to a conversation, alone.

    Attributes:
        id: the conversation id.
        principal: owner.
        lease: names the conversation, and who wants to write to it.
        seconds: for how long.
    """

    id: str
    principal: str
    lease: Lease
    seconds: float


class ConversationAddition(Struct, frozen=True, kw_only=True):
    """Items that an owner puts into a conversation by hand.

    Attributes:
        id: the conversation id.
        principal: owner.
        lease: a holder of its own; the conversation is claimed and given up in the same transaction.
        items: the items.
        at: Unix seconds.
        bounds: how much the conversation may hold with them.
    """

    id: str
    principal: str
    lease: Lease
    items: Sequence[StoredItem]
    at: int
    bounds: ConversationBounds


class ItemRemoval(Struct, frozen=True, kw_only=True):
    """That an owner takes an item out of a conversation.

    Attributes:
        id: the conversation id.
        principal: owner.
        lease: as that of a `ConversationAddition`.
        item_id: the item's id.
    """

    id: str
    principal: str
    lease: Lease
    item_id: str


class ConversationTurn(Struct, frozen=True, kw_only=True):
    """A finished response whose input and output go into a conversation.

    Attributes:
        id: the conversation id.
        lease: what the writer claimed; it is given up in the same transaction.
        response: the response, with its own input and output items.
        stored: whether the response itself is kept besides.
        at: Unix seconds.
    """

    id: str
    lease: Lease
    response: StoredResponse
    stored: bool
    at: int

    @property
    def principal(self) -> str:
        """Owner."""
        return self.response.principal


class ConversationStore(Protocol):
    """Durable conversations. Every method is scoped to a principal: another's id is simply not there.

    Every method raises StorageUnavailable when the database does not answer, and ConversationNotFound when the
    principal has no such live conversation.
    """

    async def create(self, new: NewConversation) -> None:
        """Persist a conversation with its first items; returns only after COMMIT."""
        ...

    async def find(self, principal: str, conversation_id: str) -> StoredConversation:
        """Return one conversation."""
        ...

    async def update(self, update: ConversationUpdate) -> StoredConversation:
        """Note something else, and return the conversation as it is then."""
        ...

    async def delete(self, deletion: ConversationDeletion) -> None:
        """Hide a conversation from every process; who is writing to it can store nothing any more."""
        ...

    async def claim(self, claim: ConversationClaim) -> None:
        """Let somebody write to a conversation, and nobody else meanwhile.

        Raises:
            ConversationLocked: somebody else is writing to it.
        """
        ...

    async def history(self, principal: str, conversation_id: str, bounds: ConversationBounds) -> Sequence[StoredItem]:
        """Return all items in their order, with one bounded query.

        Raises:
            InvalidRequest: there are more than the bounds allow.
        """
        ...

    async def append(self, turn: ConversationTurn) -> None:
        """Persist a response and put its items into the conversation, in one transaction that ends the claim.

        Raises:
            ConversationLocked: the claim had run out, and somebody else has taken it.
        """
        ...

    async def add(self, addition: ConversationAddition) -> None:
        """Put items at the end of a conversation.

        Raises:
            ConversationLocked: somebody is writing to it.
            InvalidRequest: an item has the id of one that is there, or there would be more than the bounds allow.
        """
        ...

    async def remove(self, removal: ItemRemoval) -> StoredConversation:
        """Take an item out of a conversation, and return the conversation.

        Raises:
            ConversationLocked: somebody is writing to it.
            ItemNotFound: it has no such item.
        """
        ...

    async def item(self, principal: str, conversation_id: str, item_id: str) -> StoredItem:
        """Return one item.

        Raises:
            ItemNotFound: the conversation has no such item.
        """
        ...

    async def page(
        self, principal: str, conversation_id: str, *, after: str | None, limit: int, descending: bool
    ) -> ItemPage:
        """Return some of the items, with one query.

        Args:
            principal: owner.
            conversation_id: the conversation id.
            after: id of the item before the first one wanted, in the order asked for; None starts at the beginning.
            limit: most items.
            descending: the newest first.

        Raises:
            InvalidRequest: there is no item of the id in `after`.
        """
        ...
