"""Makes a finished response durable, and continuable: everything here happens before its terminal event leaves."""

import time
from collections.abc import Sequence
from functools import partial
from itertools import repeat
from typing import Any

from msgspec import Struct, structs

from gateway.engine.conversations import Hold
from gateway.engine.room import Room
from gateway.engine.session import Checkpoint, Continuation
from gateway.engine.stored_items import build_stored_item
from gateway.ports import ConversationTurn, Ids, Store, StoredAgent, StoredItem, StoredResponse
from gateway.protocol import codec
from gateway.protocol.errors import StorageUnavailable
from gateway.protocol.response import EncodedResponse, Response
from gateway.telemetry.metrics import Metrics


class Lineage(Struct, frozen=True, kw_only=True):
    """What a response continues, and where that is known.

    Attributes:
        history: its effective input before its own, oldest first.
        parent_id: the response it continues, if the database has that.
        continuation: the session of its connection, if there is one.
        hold: the conversation it adds to, if there is one.
        tree: the agents that each response before it changed, oldest first; None where it continues no tree.
    """

    history: Sequence[StoredItem] = ()
    parent_id: str | None = None
    continuation: Continuation | None = None
    hold: Hold | None = None
    tree: Sequence[StoredAgent] | None = None


class Committer:
    """Writes responses to the store, and to the session of their connection.

    Args:
        store: where to.
        ids: mints ids for input items that came without one.
        metrics: time and failures of appends.
        room: told what was stored.
    """

    def __init__(self, store: Store, ids: Ids, metrics: Metrics, room: Room) -> None:
        self._store = store
        self._store_item = partial(build_stored_item, ids)
        self._metrics = metrics
        self._room = room

    async def commit(
        self,
        principal: str,
        finished: EncodedResponse,
        inputs: Sequence[dict[str, Any]],
        lineage: Lineage,
        agents: Sequence[StoredAgent] | None = None,
    ) -> None:
        """Persist a response with its new input and its output, as far as it is to be kept.

        Returns after the database has committed; only then can the connection continue it.

        Args:
            principal: who owns it.
            finished: the response.
            inputs: its own input.
            lineage: what it continues.
            agents: those that it changed, if a tree of agents has made it.

        Raises:
            ResourceLimitExceeded: it is kept in the session alone, which has no room for it.
            StorageUnavailable: nothing was stored.
        """
        continuation, response = lineage.continuation, finished.response
        if not response.store and continuation is None and lineage.hold is None:
            return
        own = [*self.list_input(inputs), *self.list_output(finished)]
        if continuation is not None:
            continuation.prepare(_build_checkpoint(response, own, lineage, agents), needed=lineage.hold is None)
        if response.store or lineage.hold is not None:
            record = self.record(principal, finished, own, lineage, agents)
            began = time.perf_counter()
            try:
                await (
                    self._store.append(record) if lineage.hold is None else self._add(record, lineage.hold, response)
                )
            except StorageUnavailable:
                self._metrics.storage_failures_total.inc()
                raise
            self._metrics.defer(self._metrics.storage_append_seconds, time.perf_counter() - began)
            if self._room.is_limited:
                self._room.add(principal, record.size)
        if continuation is not None:
            continuation.publish()

    def list_input(self, inputs: Sequence[dict[str, Any]]) -> list[StoredItem]:
        """Return input items as they are stored."""
        return [self._store_item("input", item, codec.encode(item)) for item in inputs]

    def list_output(self, finished: EncodedResponse) -> list[StoredItem]:
        """Return the output of a response as it is stored."""
        return list(map(self._store_item, repeat("output"), finished.response.output, finished.items))

    def note_stored(self, principal: str, size: int) -> None:
        """Note that so many bytes were stored for a principal."""
        if self._room.is_limited:
            self._room.add(principal, size)

    @staticmethod
    def record(
        principal: str,
        finished: EncodedResponse,
        own: Sequence[StoredItem],
        lineage: Lineage,
        agents: Sequence[StoredAgent] | None = None,
    ) -> StoredResponse:
        """Return a response as it is stored, with its own items and what it continues."""
        response = finished.response
        # Behind a parent that only the session knows the row has to hold all that came before, where no agents do.
        alone = lineage.parent_id is None and lineage.hold is None and agents is None
        context = lineage.history if alone else ()
        return StoredResponse(
            id=response.id,
            principal=principal,
            parent_id=lineage.parent_id,
            conversation_id=None if lineage.hold is None else lineage.hold.conversation_id,
            status=response.status,
            model=response.model,
            created_at=response.created_at,
            completed_at=response.completed_at,
            snapshot=finished.empty,
            items=[*[structs.replace(item, role="context") for item in context], *own] if context else own,
            agents=agents,
        )

    async def _add(self, record: StoredResponse, hold: Hold, response: Response) -> None:
        """Put a response's items into its conversation, and keep the response if it is to be kept."""
        turn = ConversationTurn(
            id=hold.conversation_id,
            lease=hold.lease,
            response=record,
            stored=response.store,
            at=response.completed_at or response.created_at,
        )
        await self._store.conversations.append(turn)
        hold.settle()


def _build_checkpoint(
    response: Response, own: Sequence[StoredItem], lineage: Lineage, agents: Sequence[StoredAgent] | None
) -> Checkpoint:
    """Return what the session of a connection remembers of a response."""
    if agents is None:
        return Checkpoint(response.id, (*lineage.history, *own), stored=response.store)
    return Checkpoint(response.id, (), stored=response.store, tree=(*(lineage.tree or ()), *agents))
