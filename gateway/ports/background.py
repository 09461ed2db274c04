"""Responses that are made on their own: what the database knows of them while they run, and their events."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from gateway.ports.leases import Lease
from gateway.ports.stored import StoredItem, StoredResponse


class Claim(Struct, frozen=True, kw_only=True):
    """The right to make one background response, until it ends or somebody takes it over.

    Attributes:
        response_id: the response.
        attempt: counts who had the right, from 1; only what the newest one writes is taken.
    """

    response_id: str
    attempt: int


class EventBatch(Struct, frozen=True, kw_only=True):
    """Events of one response that are stored together.

    Attributes:
        first: sequence number of the first one; the others follow without a gap.
        count: how many there are.
        data: the JSON of each, one a line.
    """

    first: int
    count: int
    data: bytes

    @property
    def next(self) -> int:
        """The sequence number behind the last one."""
        return self.first + self.count


class RunBegin(Struct, frozen=True, kw_only=True):
    """That a background response has been accepted.

    Attributes:
        response: it as it waits, with its input.
        request: the body that asked for it, to make it from if its process dies.
        holder: name of the lease of the process that will make it.
        batch: its first events, or None where nobody may read any.
        trace: `traceparent` of the request, or None.
    """

    response: StoredResponse
    request: bytes
    holder: str
    batch: EventBatch | None = None
    trace: str | None = None


class RunStart(Struct, frozen=True, kw_only=True):
    """That it is being made from now on.

    Attributes:
        claim: who makes it.
        snapshot: the response object as JSON, in progress, with an empty `output`.
    """

    claim: Claim
    snapshot: bytes


class RunLog(Struct, frozen=True, kw_only=True):
    """Events that have been made.

    Attributes:
        claim: who makes them.
        batch: the events.
        told: whether any of them tells of output.
    """

    claim: Claim
    batch: EventBatch
    told: bool


class RunEnd(Struct, frozen=True, kw_only=True):
    """How it ended.

    Attributes:
        claim: who made it.
        status: a terminal status.
        snapshot: the response object as JSON with an empty `output`.
        items: its output.
        ended_at: Unix seconds.
        completed_at: Unix seconds, None unless it was completed.
        batch: its last events, the terminal one included, or None where nobody may read any.
        conversation_id: the conversation that gets its input and output, or None.
        lease: by which the conversation is held, given up in the same transaction.
    """

    claim: Claim
    status: str
    snapshot: bytes
    items: Sequence[StoredItem]
    ended_at: int
    completed_at: int | None = None
    batch: EventBatch | None = None
    conversation_id: str | None = None
    lease: Lease | None = None

    @property
    def size(self) -> int:
        """Bytes of the snapshot and the output."""
        return len(self.snapshot) + sum(len(item.data) for item in self.items)


class RunCancel(Struct, frozen=True, kw_only=True):
    """That its owner wants it to end.

    Attributes:
        response_id: the response.
        principal: owner.
        at: Unix seconds.
    """

    response_id: str
    principal: str
    at: int


class RunTakeover(Struct, frozen=True, kw_only=True):
    """That another process makes it from now on.

    Attributes:
        claim: of the process that had it.
        holder: name of the lease of the one that wants it.
    """

    claim: Claim
    holder: str


class RunHandover(Struct, frozen=True, kw_only=True):
    """That a process gives up what it has, for others to take over at once.

    Attributes:
        claims: what it has.
    """

    claims: Sequence[Claim]


class EventSweep(Struct, frozen=True, kw_only=True):
    """That the events of old responses are to be removed.

    Attributes:
        ended_before: Unix seconds; what ended earlier loses its events.
        limit: of at most so many responses.
    """

    ended_before: int
    limit: int


class UnfinishedRun(Struct, frozen=True, kw_only=True):
    """A background response as whoever takes it over needs it.

    Attributes:
        claim: the newest right to make it.
        principal: owner.
        created_at: Unix seconds.
        request: the body that asked for it.
        snapshot: the response object as JSON.
        streams: whether its events may be read.
        next_number: sequence number of its next event.
        told: whether an event has told of output.
        starts: how often it was begun.
        cancelled: whether its owner wants it to end.
        trace: `traceparent` of the request, or None.
    """

    claim: Claim
    principal: str
    created_at: int
    request: bytes
    snapshot: bytes
    streams: bool
    next_number: int
    told: bool
    starts: int
    cancelled: bool
    trace: str | None = None


class RunState(Struct, frozen=True, kw_only=True):
    """How far a background response is.

    Attributes:
        status: its status.
        ended: whether it has ended.
        streams: whether its events may be read.
        next_number: sequence number of its next event.
        swept: whether its events have been removed.
    """

    status: str
    ended: bool
    streams: bool
    next_number: int
    swept: bool


class BackgroundRuns(Protocol):
    """What all processes of one database know of background responses.

    Whatever is written under a claim is compared and set: False says that the claim is no longer the newest one, that
    the response has ended or that it is gone, and nothing was written. Every method raises StorageUnavailable when the
    database does not answer, or the writer's queue is full.
    """

    async def begin(self, begin: RunBegin) -> None:
        """Store a response that waits; returns only after COMMIT."""
        ...

    async def start(self, start: RunStart) -> bool:
        """Store that it is being made."""
        ...

    async def log(self, log: RunLog) -> bool:
        """Store events."""
        ...

    async def end(self, end: RunEnd) -> bool:
        """Store how it ended, with its output and its last events, all or nothing.

        Raises:
            ConversationLocked: somebody else has its conversation now; nothing was written.
            ConversationNotFound: its conversation is gone; nothing was written.
        """
        ...

    async def cancel(self, cancel: RunCancel) -> None:
        """Note that it is to end; nothing happens if it has ended."""
        ...

    async def state(self, principal: str, response_id: str) -> RunState | None:
        """Return how far a live background response of the principal is; None if there is no such one."""
        ...

    async def events(self, principal: str, response_id: str, after: int, *, limit: int) -> Sequence[EventBatch]:
        """Return the batches with the first events behind a sequence number, `limit` batches at most, in order."""
        ...

    async def find_cancelled(self, holder: str) -> Sequence[str]:
        """Return which responses of a process are to end, because they were cancelled or deleted."""
        ...

    async def find_orphans(self, holder: str, *, limit: int) -> Sequence[Claim]:
        """Return unfinished responses whose process is gone, handed them over, or is this one; oldest first."""
        ...

    async def take_over(self, takeover: RunTakeover) -> Claim | None:
        """Take over a response; returns the new claim, or None if somebody else was faster or it has ended."""
        ...

    async def load(self, claim: Claim) -> UnfinishedRun | None:
        """Return what a response is made from; None if the claim is no longer the newest one or it has ended."""
        ...

    async def hand_over(self, handover: RunHandover) -> None:
        """Let others take over at once."""
        ...

    async def sweep(self, sweep: EventSweep) -> int:
        """Remove events; returns of how many responses."""
        ...
