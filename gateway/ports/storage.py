"""What is durable: responses with their items, and what was used."""

from collections.abc import Sequence
from datetime import date
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct

from gateway.ports.background import BackgroundRuns
from gateway.ports.leases import Leases
from gateway.ports.stored import StoredItem, StoredResponse
from gateway.protocol.agents.stored import StoredAgent

if TYPE_CHECKING:
    from gateway.ports.conversations import ConversationStore


class Deletion(Struct, frozen=True, kw_only=True):
    """That an owner no longer wants a response.

    Attributes:
        id: the response id.
        principal: owner.
        at: Unix seconds.
    """

    id: str
    principal: str
    at: int


class UsageCount(Struct, frozen=True, kw_only=True):
    """What one principal had made of one model on one day.

    Attributes:
        principal: who asked.
        day: the day, in UTC, on which the answers ended.
        model: the model asked for, cut to at most 128 characters.
        responses: responses whose tokens the inference server told.
        input_tokens: tokens read.
        cached_tokens: those of them that were cached.
        output_tokens: tokens made.
        reasoning_tokens: those of them that were reasoning.
    """

    principal: str
    day: date
    model: str
    responses: int = 0
    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0


class UsageFlush(Struct, frozen=True, kw_only=True):
    """Counts to be added to those that are stored.

    Attributes:
        id: unique; the same flush handed over again is added once.
        counts: at most one for each principal, day and model.
    """

    id: str
    counts: Sequence[UsageCount]


class History(Struct, frozen=True, kw_only=True):
    """The effective history behind one response: every item a continuation must replay, oldest first.

    Attributes:
        response_id: the newest response of the chain.
        items: context, input and output items of the whole chain, in order; none of a tree, whose agents hold them.
        responses: how many responses the chain has.
        settled: nothing of it can change as long as the response exists; items of a conversation may be taken out.
        tree: the agents that each multi-agent response of the chain changed, oldest response first; None where the
            response is not one.
    """

    response_id: str
    items: Sequence[StoredItem]
    responses: int
    settled: bool = True
    tree: Sequence[StoredAgent] | None = None


class StoreHealth(Struct, frozen=True, kw_only=True):
    """Whether the database can be used, and why not."""

    healthy: bool
    detail: str


class Store(Protocol):
    """Durable responses. Every method is scoped to a principal: another's id is simply not there."""

    @property
    def leases(self) -> Leases:
        """What processes that share the database hold for a while."""
        ...

    @property
    def conversations(self) -> "ConversationStore":
        """Items in an order of their own."""
        ...

    @property
    def background(self) -> BackgroundRuns:
        """Responses that are made on their own."""
        ...

    async def start(self) -> None:
        """Open the pools and the writer; check or run migrations as configured."""
        ...

    async def append(self, response: StoredResponse) -> None:
        """Persist one response with its items; returns only after COMMIT.

        Cancelling the caller does not undo the write: the response may be stored all the same.

        Raises:
            StorageUnavailable: the database refused or the writer's bounded queue is full; nothing was stored.
        """
        ...

    async def history(self, principal: str, response_id: str) -> History | None:
        """Return the effective history with one bounded query, or None when there is no such response.

        Raises:
            InvalidRequest: the chain is longer or larger than the store's bounds.
            StorageUnavailable: the database does not answer.
        """
        ...

    async def holds(self, principal: str, response_id: str) -> bool:
        """Tell whether the principal has such a live response, with one query that loads nothing.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        ...

    async def response(self, principal: str, response_id: str) -> StoredResponse | None:
        """Return one response with its own items, or None; its agents stay where they are.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        ...

    async def delete(self, deletion: Deletion) -> None:
        """Hide a response from every process; returns only after COMMIT.

        Live responses that continue from it still replay its items. A process that keeps histories in memory may let
        it be continued for a bounded time more.

        Raises:
            ResponseNotFound: the principal has no such live response.
            StorageUnavailable: the database does not answer, or the writer's queue is full.
        """
        ...

    async def stored_bytes(self, principal: str) -> int:
        """Return the sizes of all responses that are kept for a principal, deleted ones not yet removed included.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        ...

    async def add_usage(self, flush: UsageFlush) -> None:
        """Add counts to those stored, of whatever process; returns only after COMMIT.

        Raises:
            StorageUnavailable: the database refused, or the writer's queue is full. The flush may be handed over again.
        """
        ...

    async def items(self, principal: str, item_ids: Sequence[str]) -> dict[str, StoredItem]:
        """Return the newest visible item for each id that has one, of responses that are not deleted.

        Raises:
            InvalidRequest: the items together are larger than the store's bound.
            StorageUnavailable: the database does not answer.
        """
        ...

    async def verify(self) -> None:
        """Make sure that responses can be stored now: the database has just taken a write, or takes one when asked.

        Raises:
            StorageUnavailable: it does not answer, is full or read-only, or its schema does not fit.
        """
        ...

    async def probe(self) -> StoreHealth:
        """Check that the database answers, is migrated and stores what it is given. Never raises."""
        ...

    async def close(self) -> None:
        """Write what is queued, then close."""
        ...
