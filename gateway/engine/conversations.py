"""Conversations: kept, read and changed for their owners, and held by the response that writes to one."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from gateway.config.schema import GatewayConfig
from gateway.engine.delivery import Channel, EncodedEvent
from gateway.engine.input_items import Page, present_item
from gateway.engine.lease import LeaseKeeper
from gateway.engine.room import Room
from gateway.engine.stored_items import build_stored_item
from gateway.ports import (
    Clock,
    ConversationAddition,
    ConversationBounds,
    ConversationClaim,
    ConversationDeletion,
    ConversationUpdate,
    Ids,
    ItemRemoval,
    Lease,
    NewConversation,
    Store,
    StoredConversation,
    StoredItem,
    conversation_lease,
)
from gateway.protocol import codec
from gateway.protocol.conversations import (
    AddedItems,
    Conversation,
    ConversationFields,
    ConversationUpdateFields,
    DeletedConversation,
    check_item_ids,
    read_new_items,
    refuse_size,
)
from gateway.protocol.errors import ConversationLocked, ConversationNotFound, GatewayError
from gateway.protocol.history import drop_orphaned_outputs
from gateway.protocol.ids import prefix_of
from gateway.protocol.mismatch import read_fields
from gateway.protocol.response import ItemList

T = TypeVar("T")


class Hold:
    """A conversation that one response reads, and alone may add to until it ends.

    Args:
        conversation_id: which one.
        lease: by which others know.
        items: what the conversation holds, oldest first.
        bounds: how much it may hold.
        keeper: renews the lease.
    """

    def __init__(
        self,
        conversation_id: str,
        lease: Lease,
        items: Sequence[StoredItem],
        bounds: ConversationBounds,
        keeper: LeaseKeeper,
    ) -> None:
        self.conversation_id = conversation_id
        self.lease = lease
        self.items = items
        self._bounds = bounds
        self._keeper = keeper
        self._held = True
        self._end: Callable[[GatewayError], None] | None = None
        keeper.keep(lease, self._lose)

    def recall(self, history: list[dict[str, Any]], new: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the history as a model is shown it, if the conversation can take what is new.

        Raises:
            InvalidRequest: an id is there already, or there would be too much.
        """
        check_item_ids([item.get("id") for item in new], {item.id for item in self.items})
        size = sum(len(item.data) for item in self.items) + sum(len(codec.encode(item)) for item in new)
        refusal = refuse_size(
            len(self.items) + len(new), size, self._bounds.max_items, self._bounds.max_bytes, param="input"
        )
        if refusal is not None:
            raise refusal
        return drop_orphaned_outputs(history)

    def watch(self, end: Callable[[GatewayError], None]) -> None:
        """Say what ends the response if somebody else gets the conversation."""
        self._end = end
        if not self._held:
            self._lose()

    def settle(self) -> None:
        """Note that the response was committed, which gave the conversation up."""
        self._held = False
        self._keeper.forget(self.lease)

    async def release(self) -> None:
        """Give the conversation up. Idempotent."""
        if self._held:
            self._held = False
            await self._keeper.release(self.lease)

    def _lose(self) -> None:
        self._held = False
        if self._end is not None:
            self._end(ConversationLocked(self.conversation_id))


class HoldingChannel:
    """The channel of a response that gives its conversation up before its client learns of the end.

    Args:
        channel: to the client.
        hold: the conversation.
    """

    def __init__(self, channel: Channel, hold: Hold) -> None:
        self._channel = channel
        self._hold = hold
        self.write = channel.write
        self.put = channel.put

    @property
    def opened(self) -> bool:
        """Whether the client has been told of the response."""
        return self._channel.opened

    async def end(self, batch: list[EncodedEvent]) -> None:
        """Send the last batch; whoever has it finds the conversation free."""
        await self._hold.release()
        await self._channel.end(batch)


class Conversations:
    """What callers do with conversations, each method answering with JSON.

    Every method raises ConversationNotFound when the principal has no such conversation, and StorageUnavailable when
    the database does not answer.

    Args:
        store: keeps them.
        clock: tells when.
        ids: mints ids.
        room: knows how much each principal may keep.
        config: bounds.
    """

    def __init__(self, store: Store, clock: Clock, ids: Ids, room: Room, config: GatewayConfig) -> None:
        self._store = store.conversations
        self._clock = clock
        self._ids = ids
        self._room = room
        self._keeper = LeaseKeeper(store.leases, config.storage.lease_seconds)
        self.reconfigure(config)

    def reconfigure(self, config: GatewayConfig) -> None:
        """Use other bounds from now on."""
        bounds = config.conversations
        self._bounds = ConversationBounds(max_items=bounds.max_items, max_bytes=bounds.max_bytes)
        # What is stored now may be sent to any of them later.
        self._remote_images = all(one.remote_images == "forward" for one in config.upstream_map().values())

    async def hold_for(self, principal: str, conversation_id: str, prepare: Callable[[Hold], Awaitable[T]]) -> T:
        """Let one response, and no other in any process, read a conversation and add to it.

        Args:
            principal: owner.
            conversation_id: which one.
            prepare: takes the conversation over, to release it in the end; if it fails, it is released here.

        Raises:
            ConversationLocked: another one does.
            InvalidRequest: it holds more than it may.
        """
        hold = await self._hold(principal, conversation_id)
        try:
            return await prepare(hold)
        except BaseException:
            await hold.release()
            raise

    async def create(self, principal: str, body: Mapping[str, Any]) -> bytes:
        """Begin a conversation.

        Raises:
            InvalidRequest: names the field at fault.
            InsufficientQuota: the principal keeps as much as it may.
        """
        fields = read_fields(dict(body), ConversationFields)
        items = self._read_items(fields.items)
        metadata = codec.encode(fields.metadata or {})
        await self._check_room(principal)
        conversation = StoredConversation(
            id=self._ids.mint(prefix_of("conversation")),
            principal=principal,
            created_at=int(self._clock.now()),
            metadata=metadata,
        )
        await self._store.create(NewConversation(conversation=conversation, items=items))
        self._room.add(principal, len(metadata) + _measure(items))
        return _tell(conversation)

    async def retrieve(self, principal: str, conversation_id: str) -> bytes:
        """Return a conversation."""
        return _tell(await self._store.find(principal, conversation_id))

    async def update(self, principal: str, conversation_id: str, body: Mapping[str, Any]) -> bytes:
        """Replace a conversation's metadata.

        Raises:
            InvalidRequest: names the field at fault.
        """
        fields = read_fields(dict(body), ConversationUpdateFields)
        metadata = codec.encode(fields.metadata or {})
        update = ConversationUpdate(id=conversation_id, principal=principal, metadata=metadata)
        return _tell(await self._store.update(update))

    async def delete(self, principal: str, conversation_id: str) -> bytes:
        """Hide a conversation from everybody; a response that is adding to it fails."""
        at = int(self._clock.now())
        await self._store.delete(ConversationDeletion(id=conversation_id, principal=principal, at=at))
        return codec.encode(DeletedConversation(id=conversation_id))

    async def add(self, principal: str, conversation_id: str, body: Mapping[str, Any]) -> bytes:
        """Put items at the end of a conversation, and return them as a list.

        Raises:
            ConversationLocked: a response is adding to it.
            InvalidRequest: names the item at fault, or the bound that would be passed.
            InsufficientQuota: the principal keeps as much as it may.
        """
        items = self._read_items(read_fields(dict(body), AddedItems).items)
        await self._check_room(principal)
        addition = ConversationAddition(
            id=conversation_id,
            principal=principal,
            lease=self._name_lease(conversation_id),
            items=items,
            at=int(self._clock.now()),
            bounds=self._bounds,
        )
        await self._store.add(addition)
        self._room.add(principal, _measure(items))
        return _list(items, has_more=False)

    async def items(self, principal: str, conversation_id: str, page: Page) -> bytes:
        """Return one page of a conversation's items.

        Raises:
            InvalidRequest: the page begins after an item that is not there.
        """
        found = await self._store.page(
            principal, conversation_id, after=page.after, limit=page.limit, descending=page.order == "desc"
        )
        return _list(found.items, has_more=found.has_more)

    async def item(self, principal: str, conversation_id: str, item_id: str) -> bytes:
        """Return one item.

        Raises:
            ItemNotFound: the conversation has no such item.
        """
        item = await self._store.item(principal, conversation_id, item_id)
        return codec.encode(present_item(item.id, item))

    async def remove(self, principal: str, conversation_id: str, item_id: str) -> bytes:
        """Take an item out of a conversation, and return the conversation.

        Raises:
            ConversationLocked: a response is adding to it.
            ItemNotFound: the conversation has no such item.
        """
        removal = ItemRemoval(
            id=conversation_id, principal=principal, lease=self._name_lease(conversation_id), item_id=item_id
        )
        return _tell(await self._store.remove(removal))

    async def load(self, principal: str, conversation_id: str) -> Sequence[StoredItem]:
        """Return all that a conversation holds now, for somebody who adds nothing to it.

        Raises:
            ConversationNotFound: the principal has no such conversation.
            InvalidRequest: it holds more than it may.
        """
        await self._store.find(principal, conversation_id)
        return await self._store.history(principal, conversation_id, self._bounds)

    async def _hold(self, principal: str, conversation_id: str) -> Hold:
        lease = self._name_lease(conversation_id)
        claim = ConversationClaim(id=conversation_id, principal=principal, lease=lease, seconds=self._keeper.seconds)
        try:
            await self._store.claim(claim)
            items = await self._store.history(principal, conversation_id, self._bounds)
        except (ConversationLocked, ConversationNotFound):
            raise
        except BaseException:
            # A claim that nobody waits for any more is carried out all the same.
            await self._keeper.release(lease)
            raise
        return Hold(conversation_id, lease, items, self._bounds, self._keeper)

    def _name_lease(self, conversation_id: str) -> Lease:
        return conversation_lease(conversation_id, self._ids.mint("lease"))

    def _read_items(self, given: list[Any] | None) -> list[StoredItem]:
        items = read_new_items(given, remote_images=self._remote_images)
        check_item_ids([item.get("id") for item in items], (), name="items")
        return [build_stored_item(self._ids, "input", item, codec.encode(item)) for item in items]

    async def _check_room(self, principal: str) -> None:
        if self._room.is_limited:
            await self._room.check(principal)


def _measure(items: Sequence[StoredItem]) -> int:
    return sum(len(item.data) for item in items)


def _list(items: Sequence[StoredItem], *, has_more: bool) -> bytes:
    data = [present_item(item.id, item) for item in items]
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return codec.encode(ItemList(data=data, first_id=first, last_id=last, has_more=has_more))


def _tell(conversation: StoredConversation) -> bytes:
    return codec.encode(
        Conversation(
            id=conversation.id,
            created_at=conversation.created_at,
            metadata=codec.decode(conversation.metadata, max_depth=None),
        )
    )
