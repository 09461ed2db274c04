"""The channel of a background response: its events go to the database, and from there to whoever reads them."""

import asyncio
import logging
from collections.abc import Callable

from msgspec import structs

from gateway.config.schema import BackgroundConfig
from gateway.engine.commit import Committer
from gateway.engine.delivery import EncodedEvent
from gateway.engine.plan import Plan
from gateway.engine.wakes import rest
from gateway.ports import BackgroundRuns, Claim, Clock, EventBatch, RunEnd, RunLog
from gateway.protocol import recorded
from gateway.protocol.errors import ResourceLimitExceeded, StorageUnavailable
from gateway.protocol.response import EncodedResponse, ResponseError
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.names import LOGGER_ENGINE

_RETRY_SECONDS = 1.0

_logger = logging.getLogger(LOGGER_ENGINE)


class ClaimLostError(asyncio.CancelledError):
    """Somebody else makes the response now, or it has ended or is gone: as for a client that left, nobody is told."""


class EventLog:
    """Stores the events of one response in batches, and its end together with the last of them.

    Nobody is told an event before it is durable, so that whoever goes on reading elsewhere misses none.

    Args:
        claim: the right to make it.
        plan: what is made.
        runs: the database.
        committer: makes items of its output.
        settings: bounds of batches and of all events together.
        streams: whether anybody may read the events; if not, only the end is stored.
        next_number: sequence number of the first event.
        give_up_at: Unix seconds until which the end is tried again while the database takes nothing.
        clock: the time of the end.
        metrics: bytes of events.
        noted: called whenever more can be read.
        lost: called when the claim turns out to be lost.

    Attributes:
        opened: always; there is nobody to whom a failure could be the answer itself.
        told: whether an event has told of output.
        ended: the status it ended with, once that is durable.
    """

    opened = True

    def __init__(
        self,
        claim: Claim,
        plan: Plan,
        runs: BackgroundRuns,
        committer: Committer,
        settings: BackgroundConfig,
        *,
        streams: bool,
        next_number: int,
        give_up_at: float,
        clock: Clock,
        metrics: Metrics,
        noted: Callable[[], None],
        lost: Callable[[], object],
    ) -> None:
        self._claim = claim
        self._plan = plan
        self._runs = runs
        self._committer = committer
        self._settings = settings
        self._streams = streams
        self._give_up_at = give_up_at
        self._clock = clock
        self._metrics = metrics
        self._noted = noted
        self._lost = lost
        # Not durable yet; the first one's number, their bytes, and those of all there were.
        self._pending: list[bytes] = []
        self._first = next_number
        self._bytes = 0
        self._total = 0
        self._flusher: asyncio.Task[None] | None = None
        self._hurry = asyncio.Event()
        self._flushed = asyncio.Event()
        self._ending = False
        self._closed = False
        self.told = False
        self.ended: str | None = None

    # ------------------------------------------------------------ a channel

    def write(self, batch: list[EncodedEvent]) -> bool:
        """Keep a batch; False, and nothing done, while as many bytes wait as may."""
        self._check()
        if self._bytes >= self._settings.flush_bytes:
            return False
        self._append(batch)
        return True

    async def put(self, batch: list[EncodedEvent]) -> None:
        """Keep a batch, as soon as fewer bytes wait than may.

        Raises:
            ResourceLimitExceeded: all events together pass `[background] max_event_bytes`.
        """
        try:
            while self._bytes >= self._settings.flush_bytes:
                self._flushed.clear()
                await self._flushed.wait()
                self._check()
        finally:
            self._append(batch)

    async def end(self, batch: list[EncodedEvent]) -> None:
        """Store a failure with the batch that tells it, if the response has not been stored as it is.

        Raises:
            StorageUnavailable: the database takes nothing; the response is left for whoever takes it over.
        """
        if self.ended is not None:
            return
        response = self._plan.turn.response
        if response.status != "failed":
            error = ResponseError(code="server_error", message="The response failed.")
            response = structs.replace(response, status="failed", error=error, output=self._plan.turn.output)
        await self._finish(EncodedResponse(response), [data for _, data in batch])

    async def keep(self, finished: EncodedResponse, events: list[EncodedEvent]) -> None:
        """Store a finished response with its last events; as `delivery.Keeper`."""
        await self._finish(finished, [data for _, data in events], terminal=True)

    # ------------------------------------------------------------ other ends

    async def cancel(self) -> None:
        """End the response as its owner wished, with the output so far.

        Raises:
            StorageUnavailable: as `end`.
        """
        turn = self._plan.turn
        if self.ended is None:
            response = turn.response if turn.phase.is_terminal else turn.cancel()
            await self._finish(EncodedResponse(response), [], terminal=True)

    def close(self) -> None:
        """Store nothing more: the response is left for whoever takes it over."""
        self._closed = True
        if self._flusher is not None:
            self._flusher.cancel()
        self._flushed.set()

    # ------------------------------------------------------------ inside

    def _check(self) -> None:
        if self._closed:
            raise ClaimLostError

    def _append(self, batch: list[EncodedEvent]) -> None:
        if not self._streams:
            return
        size = sum(len(data) for _, data in batch)
        if self._total + size > self._settings.max_event_bytes:
            limit = self._settings.max_event_bytes
            raise ResourceLimitExceeded(
                "max_event_bytes", limit, f"The events exceed [background] max_event_bytes ({limit} bytes)."
            )
        self._total += size
        self._bytes += size
        self._pending += [data for _, data in batch]
        self.told = self.told or any(recorded.tells_output(name) for name, _ in batch)
        if self._bytes >= self._settings.flush_bytes:
            self._hurry.set()
        if self._flusher is None and not self._closed:
            self._flusher = asyncio.create_task(self._flush(), name=f"events of {self._claim.response_id}")

    async def _flush(self) -> None:
        """Store what waits, now and whenever something has waited for a while."""
        while not (self._closed or self._ending):
            self._hurry.clear()
            if self._pending:
                await self._store()
            await rest(self._settings.flush_interval_seconds, self._hurry)
            if not self._pending:
                break
        self._flusher = None

    async def _store(self) -> None:
        batch = self._batch(self._pending)
        assert batch is not None
        try:
            taken = await self._runs.log(RunLog(claim=self._claim, batch=batch, told=self.told))
        except StorageUnavailable as error:
            # What waits is bounded, and the inference waits behind it.
            _logger.warning("events could not be stored, which is tried again: %s", error.message)
            await asyncio.sleep(_RETRY_SECONDS)
            return
        if not taken:
            self._lose()
            return
        self._take_off(batch)
        self._flushed.set()
        self._noted()

    def _batch(self, pending: list[bytes]) -> EventBatch | None:
        if not self._streams:
            return None
        return EventBatch(first=self._first, count=len(pending), data=recorded.join(pending))

    def _take_off(self, batch: EventBatch) -> None:
        self._metrics.background_event_bytes_total.inc(len(batch.data))
        self._bytes -= sum(map(len, self._pending[: batch.count]))
        del self._pending[: batch.count]
        self._first = batch.next

    async def _finish(self, finished: EncodedResponse, last: list[bytes], *, terminal: bool = False) -> None:
        """Store the end with all that waits; `terminal` if the terminal event is still to be made."""
        self._check()
        await self._stop_flushing()
        response = finished.response
        pending = [*self._pending, *last]
        if terminal:
            pending.append(self._encode_terminal(finished, self._first + len(pending)))
        items = self._committer.list_output(finished)
        # As over any other transport, what failed or was cancelled adds nothing to a conversation.
        hold = self._plan.lineage.hold if response.status in {"completed", "incomplete"} else None
        end = RunEnd(
            claim=self._claim,
            status=response.status,
            snapshot=finished.empty,
            items=items,
            ended_at=int(self._clock.now()),
            completed_at=response.completed_at,
            batch=self._batch(pending),
            conversation_id=None if hold is None else hold.conversation_id,
            lease=None if hold is None else hold.lease,
        )
        if not await self._persist(end):
            self._lose()
            raise ClaimLostError
        if hold is not None:
            hold.settle()
        self._committer.note_stored(self._plan.caller.principal, end.size)
        self.ended = response.status
        if end.batch is not None:
            self._metrics.background_event_bytes_total.inc(len(end.batch.data))
        self._noted()

    def _encode_terminal(self, finished: EncodedResponse, number: int) -> bytes:
        status = finished.response.status
        event = recorded.encode_terminal(status, number, finished.join())
        if len(event) <= self._plan.settings.limits.max_stream_event_bytes:
            return event
        return recorded.encode_terminal(status, number, finished.empty)

    async def _persist(self, end: RunEnd) -> bool:
        while True:
            try:
                return await self._runs.end(end)
            except StorageUnavailable as error:
                if self._clock.now() >= self._give_up_at:
                    raise
                _logger.warning("the end of a response could not be stored, which is tried again: %s", error.message)
            await asyncio.sleep(_RETRY_SECONDS)
            self._check()

    async def _stop_flushing(self) -> None:
        """Let a batch that is being stored be stored; what waits then is for the end."""
        self._ending = True
        self._hurry.set()
        if self._flusher is not None:
            await asyncio.wait((self._flusher,))

    def _lose(self) -> None:
        self.close()
        self._lost()
