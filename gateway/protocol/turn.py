"""One whole response: lifecycle, items, ledger and numbering. `Turn.ingest` is the way in.

A turn never awaits and reads no clock: time comes as an argument, ids from the callable given. Its owner moves bytes.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, ClassVar

from msgspec import Raw, structs

from gateway.protocol import codec, events
from gateway.protocol import upstream_events as up
from gateway.protocol.accumulator import Accumulator, SummaryMode
from gateway.protocol.announcer import Round
from gateway.protocol.carriage import Carriage
from gateway.protocol.citations import Source, Sources
from gateway.protocol.compaction import COMPACTION
from gateway.protocol.compaction_slot import CompactionSlot
from gateway.protocol.errors import GatewayError, ResourceLimitExceeded, UpstreamError
from gateway.protocol.events import Event
from gateway.protocol.hosted import HostedResult, HostedTool, Listed
from gateway.protocol.hosted_slots import HostedSlot, ListingSlot
from gateway.protocol.ids import prefix_of
from gateway.protocol.ledger import Ledger
from gateway.protocol.lifecycle import Phase, move
from gateway.protocol.limits import Limits
from gateway.protocol.minimal_error import minimal_error
from gateway.protocol.numbering import Numbering
from gateway.protocol.response import (
    EncodedResponse,
    IncompleteDetails,
    Response,
    ResponseError,
    Usage,
    add_usage,
    read_usage,
)

_ENDED_STATUS: dict[type[up.Ended], str] = {
    up.Completed: "completed",
    up.Incomplete: "incomplete",
    up.Failed: "failed",
    up.Cancelled: "cancelled",
}
_FAILURES = ("failed", "cancelled")
_ROOT = "/root"


class Turn:
    """A response from its creation to its terminal event.

    Args:
        response: the response object as it is created, `status` `in_progress`, `output` empty.
        limits: the limits of this response.
        mint: returns a new id for a prefix.
        carriage: names of carried tools.
        used_call_ids: call ids of the effective input.
        summary_mode: how reasoning text is told.
    """

    ITEMS: ClassVar[type[Accumulator]] = Accumulator

    def __init__(
        self,
        response: Response,
        limits: Limits,
        mint: Callable[[str], str],
        *,
        carriage: Carriage | None = None,
        used_call_ids: set[str] | None = None,
        summary_mode: SummaryMode = "off",
    ) -> None:
        self.response = response
        self.ledger = Ledger(limits.max_retained_bytes)
        self.phase = Phase.ADMITTED
        self._numbers = Numbering()
        # Events made but not handed over yet; what an error leaves here is owed before the terminal.
        self._owed: list[Event] = []
        self.usage: Usage | None = None
        self._reason: str | None = None
        self._mint = mint
        self._items = self.ITEMS(
            self.ledger,
            self._numbers,
            mint,
            carriage or Carriage(),
            used_call_ids if used_call_ids is not None else set(),
            summary_mode,
        )

    @property
    def output(self) -> list[Any]:
        """The items so far."""
        return self._items.output()

    @property
    def next_number(self) -> int:
        """The sequence number of the next event."""
        return self._numbers.next

    # ------------------------------------------------------------ the way in

    def enqueue(self) -> list[Event]:
        """Have the response wait until it begins, and return `response.created` and `response.queued`."""
        self.phase = move(self.phase, Phase.QUEUED)
        self.response = structs.replace(self.response, status="queued")
        same = Raw(codec.encode(self.response))
        return self._numbers.give([events.ResponseCreated(response=same), events.ResponseQueued(response=same)])

    def begin(self) -> list[Event]:
        """Start the response and return `response.created`, unless it has waited, and `response.in_progress`."""
        waited = self.phase is Phase.QUEUED
        self.phase = move(self.phase, Phase.IN_PROGRESS)
        if waited:
            self.response = structs.replace(self.response, status="in_progress")
            return [self.repeat_progress()]
        same = Raw(codec.encode(self.response))
        return self._numbers.give([events.ResponseCreated(response=same), events.ResponseInProgress(response=same)])

    def repeat_progress(self) -> Event:
        """Return `response.in_progress` once more, for a client that has heard nothing for long."""
        return self._numbers.give([events.ResponseInProgress(response=self.response)])[0]

    def tell(self, event: Event) -> list[Event]:
        """Return an event that belongs to no item, numbered: what became of a control."""
        return self._numbers.give([event])

    def open_round(self, agent: str = _ROOT) -> Round:
        """Return a new round: one upstream inference of one agent. Several may be open at once."""
        return Round(agent)

    def permit_citing(self, sources: Iterable[Source]) -> None:
        """Have messages from now on annotated where they cite one of these sources."""
        if self._items.sources is None:
            self._items.sources = Sources()
        self._items.sources.add(sources)

    def ingest(self, round_: Round, event: up.UpstreamEvent) -> list[Event]:
        """Take one engine event and return the client's events, numbered.

        For a delta that goes on with the one before, `round_.flow` is a shorter way.

        After an engine's terminal event `round_.ended` is true and everything later is ignored.

        Raises:
            UpstreamError: the engine reported a failure.
            ResourceLimitExceeded: the turn would retain more than `max_retained_bytes`.
        """
        if round_.ended:
            return []
        round_.flow = None
        take = Accumulator.EVENTS.get(type(event))
        if take is not None:
            out = take(self._items, round_, event)
        elif isinstance(event, up.Ended):
            out = self._end_round(round_, event)
        elif isinstance(event, up.Failure):
            raise UpstreamError(event.message, code=event.code)
        else:
            return []
        # Another round, which failed while the response goes on, may have left something.
        return self._numbers.give(self._hand_over() + out if self._owed else out)

    def ingest_body(self, round_: Round, body: Any) -> list[Event]:
        """Take a whole JSON answer, each item as if its event had come.

        Raises:
            UpstreamError: it is not a finished response object, or one that failed.
            ResourceLimitExceeded: as `ingest`.
        """
        if not isinstance(body, dict) or not isinstance(body.get("output"), list):
            status = body.get("status") if isinstance(body, dict) else None
            if status in _FAILURES or (isinstance(body, dict) and body.get("error")):
                raise _failure_of(body.get("error"), status if status in _FAILURES else "failed")
            raise UpstreamError("The upstream answered JSON that is not a response.", code="upstream_invalid_body")
        if body.get("status", "completed") in ("queued", "in_progress"):
            raise UpstreamError("The upstream answered a response that is not finished.", code="upstream_invalid_body")
        if round_.ended:
            return []
        known: set[Any] = set()
        for index, item in enumerate(body["output"]):
            if isinstance(item, dict):
                # Each is an item of its own; what came before goes by its place where an id is repeated.
                item_id = up.text_of(item.get("id"))
                own = {**item, "id": None} if item_id in known else item
                known.add(item_id)
                self._owed += self._items.take_item(round_, up.ItemDone(item=own, output_index=index))
        return self._numbers.give(self._end_round(round_, up.Completed(response=up.read_snapshot(body))))

    # ------------------------------------------------------------ the gateway's own tools

    def host(self, tools: Iterable[HostedTool], most: int | None) -> None:
        """Take the engine's calls of these tools as calls that the gateway runs, `most` of them at most."""
        self._items.naming.host(tools, most)

    @property
    def exhausted(self) -> bool:
        """Whether no further call of the gateway's tools is run."""
        return self._items.naming.exhausted

    def open_listings(self, round_: Round, labels: Iterable[str]) -> tuple[Sequence[ListingSlot], list[Event]]:
        """Tell of servers that are to be asked for their tools, in a round of their own.

        Raises:
            ResourceLimitExceeded: as `ingest`.
        """
        slots = [self._items.naming.list_tools(label) for label in labels]
        return slots, self._tell(round_, self._items.open(round_, slots))

    def open_approved(
        self, round_: Round, calls: Iterable[tuple[HostedTool, str, str]]
    ) -> tuple[Sequence[HostedSlot], list[Event]]:
        """Tell of calls that the client approved, in a round of their own.

        Args:
            round_: the round.
            calls: tool, arguments and id of the request for approval of each.

        Raises:
            ResourceLimitExceeded: as `ingest`.
        """
        slots = [self._items.naming.call_approved(*call) for call in calls]
        return slots, self._tell(round_, self._items.open(round_, slots))

    def conclude_call(self, round_: Round, slot: HostedSlot, result: HostedResult) -> list[Event]:
        """Take the result of a call; what is told follows the order of the items, not of the results.

        Raises:
            ResourceLimitExceeded: as `ingest`.
        """
        slot.conclude(result)
        if result.sources:
            self.permit_citing(result.sources)
        return self._tell(round_, self._items.conclude(round_, slot))

    def conclude_listing(self, round_: Round, slot: ListingSlot, listed: Listed) -> list[Event]:
        """Take what came of asking a server for its tools, as `conclude_call`.

        Raises:
            ResourceLimitExceeded: as `ingest`.
        """
        slot.conclude(listed)
        return self._tell(round_, self._items.conclude(round_, slot))

    @property
    def is_cut_short(self) -> bool:
        """Whether the response will end as incomplete."""
        return self._reason is not None

    def cut_short(self, reason: str) -> None:
        """Let the response end as incomplete."""
        self._reason = reason

    # ------------------------------------------------------------ compaction

    def tell_compaction(self, token: str) -> list[Event]:
        """Take the sealed note of a history and return the client's events, numbered.

        Raises:
            ResourceLimitExceeded: as `ingest`; nothing was taken.
        """
        slot = CompactionSlot(self._mint(prefix_of(COMPACTION)), token)
        return self._numbers.give(self._items.open(self.open_round(), [slot]))

    def count(self, usage: Usage | None) -> None:
        """Add the tokens of an inference that is no round."""
        self.usage = add_usage(self.usage, usage)

    # ------------------------------------------------------------ the way out

    def propose(self, now: int) -> Response:
        """Return the response as the rounds ended; it stays open until `settle`.

        So it can be measured and persisted first, and the turn can still fail.
        """
        return structs.replace(
            self.response,
            status="incomplete" if self._reason else "completed",
            completed_at=None if self._reason else now,
            incomplete_details=IncompleteDetails(reason=self._reason) if self._reason else None,
            output=self.output,
            usage=self.usage,
        )

    def announce(self, proposed: EncodedResponse) -> Event:
        """Return the terminal event of a proposed response."""
        kind = events.ResponseIncomplete if proposed.response.status == "incomplete" else events.ResponseCompleted
        return self._numbers.give([kind(response=Raw(proposed.join()))])[0]

    def settle(self, response: Response) -> None:
        """End the response as proposed."""
        self.phase = move(self.phase, Phase.INCOMPLETE if response.status == "incomplete" else Phase.COMPLETED)
        self.response = response

    def fail(self, error: GatewayError, round_: Round | None = None) -> tuple[list[Event], Iterator[Event]]:
        """End the response as failed.

        Returns:
            The events still owed before the terminal, and the terminal in ever smaller forms under one number: with
            the partial output, without output, without the request's own fields, and last the minimal `error` event,
            which may always be sent. The caller sends the first that fits.
        """
        if round_ is not None:
            self._owed.extend(self._items.abandon(round_))
        owed = self._numbers.give(self._hand_over())
        self.phase = move(self.phase, Phase.FAILED)
        self.response = structs.replace(
            self.response,
            status="failed",
            error=_response_error(error),
            output=self.output,
            usage=self.usage,
        )
        return owed, self._failures(error)

    def cancel(self) -> Response:
        """End the response as its caller wished, with the output so far, and return it; of events there are none."""
        self.phase = move(self.phase, Phase.CANCELLED)
        self.response = structs.replace(self.response, status="cancelled", output=self.output, usage=self.usage)
        return self.response

    def rewind(self, sequence_number: int) -> None:
        """Take back the numbers from `sequence_number` on: those events were not sent."""
        self._numbers.next = sequence_number

    # ------------------------------------------------------------ inside

    def _hand_over(self) -> list[Event]:
        out, self._owed = self._owed, []
        return out

    def _tell(self, round_: Round, out: list[Event]) -> list[Event]:  # noqa: ARG002 - whose it is matters in trees
        return self._numbers.give(out)

    def _end_round(self, round_: Round, event: up.Ended) -> list[Event]:
        snapshot = event.response or up.Snapshot()
        status = snapshot.status
        if status not in ("completed", "incomplete", "failed", "cancelled"):
            status = _ENDED_STATUS[type(event)]
        round_.response_id, round_.model = up.text_of(snapshot.id), up.text_of(snapshot.model)
        round_.usage = read_usage(snapshot.usage)
        self.usage = add_usage(self.usage, round_.usage)
        if status in _FAILURES:
            raise _failure_of(snapshot.error, status)
        output = snapshot.output
        for index, item in enumerate(output if isinstance(output, list) else []):
            self._owed += self._items.adopt(round_, index, item)
        if status == "incomplete":
            details = snapshot.incomplete_details
            reason = details.get("reason") if isinstance(details, dict) else None
            round_.reason = self._reason = reason if isinstance(reason, str) and reason else "max_output_tokens"
        self._owed += self._items.end(round_, truncated=status == "incomplete")
        round_.ended = True
        return self._hand_over()

    def _failures(self, error: GatewayError) -> Iterator[Event]:
        number = self._numbers.next
        self._numbers.next += 1
        full = self.response
        yield events.ResponseFailed(sequence_number=number, response=full)
        bare = structs.replace(full, output=[])
        yield events.ResponseFailed(sequence_number=number, response=bare)
        yield events.ResponseFailed(sequence_number=number, response=structs.replace(bare, instructions=None, tools=[]))
        yield minimal_error(error, number)


def _response_error(error: GatewayError) -> ResponseError:
    found = ResponseError(code=error.code, message=error.message)
    if isinstance(error, ResourceLimitExceeded):
        found.param = None
        found.resource, found.limit = error.resource, error.limit
    return found


def _failure_of(error: Any, status: str) -> UpstreamError:
    fields: dict[str, Any] = error if isinstance(error, dict) else {"message": error}
    message = up.text_of(fields.get("message")) or f"The upstream ended the response as {status}."
    return UpstreamError(message[: up.MAX_ERROR_MESSAGE], code=up.read_code(fields.get("code")))
