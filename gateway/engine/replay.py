"""Reads the events of a background response: those that are stored, then the ones that come, wherever it is made."""

from collections.abc import Callable
from typing import NoReturn

from gateway.config.schema import BackgroundConfig
from gateway.engine.delivery import Channel
from gateway.engine.wakes import Wakes, rest
from gateway.ports import BackgroundRuns, RunState
from gateway.protocol import recorded
from gateway.protocol.errors import InvalidRequest, NotFound, RateLimitExceeded
from gateway.telemetry.metrics import Metrics

# Batches read at once, and so the most of a reader's memory: so often [background] flush_bytes, or an event.
_BATCHES = 4
_BUSY_RETRY_SECONDS = 1.0


class Replay:
    """Follows responses by what the database has of them.

    Args:
        runs: the database.
        wakes: tells of responses that are made in this process.
        settings: returns the bounds in effect.
        metrics: how many read.
    """

    def __init__(
        self, runs: BackgroundRuns, wakes: Wakes, settings: Callable[[], BackgroundConfig], metrics: Metrics
    ) -> None:
        self._runs = runs
        self._wakes = wakes
        self._settings = settings
        self._readers = metrics.background_readers

    def admit(self) -> None:
        """Return if there may be one reader more.

        Raises:
            RateLimitExceeded: there are `[background] max_readers`.
        """
        most = self._settings().max_readers
        if self._readers.now >= most:
            raise RateLimitExceeded(
                f"{most} clients read events of background responses already ([background] max_readers); get the "
                "response without 'stream', or send the request again later.",
                bound="background.max_readers",
                retry_after=_BUSY_RETRY_SECONDS,
            )

    async def check(self, principal: str, response_id: str) -> bool:
        """Tell whether the principal has a background response of that id whose events can be read.

        Raises:
            InvalidRequest: it was made without events.
            RateLimitExceeded: as `admit`.
            NotFound: its events have been removed.
            StorageUnavailable: the database does not answer.
        """
        state = await self._runs.state(principal, response_id)
        if state is None:
            return False
        if not state.streams:
            refuse_stream()
        if state.swept:
            raise NotFound(
                "The events of this response are kept no longer ([background] event_retention_seconds); leave "
                "'stream' out to get it whole.",
                code="response_events_not_found",
                param="stream",
            )
        self.admit()
        return True

    async def follow(self, principal: str, response_id: str, after: int, channel: Channel) -> None:
        """Tell every event behind a sequence number, in order and once, and end the answer behind the last one.

        Where the response is deleted meanwhile, the answer ends there.

        Args:
            principal: owner.
            response_id: a response that `check` has found.
            after: the sequence number; -1 for all events.
            channel: takes the events.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        self._readers.move(1)
        try:
            while True:
                event = self._wakes.watch(response_id)
                batches = await self._runs.events(principal, response_id, after, limit=_BATCHES)
                for batch in batches:
                    told = list(recorded.split(batch.data, after + 1 - batch.first))
                    after = batch.next - 1
                    if told[-1][0] in recorded.TERMINALS:
                        await channel.end(told)
                        return
                    await channel.put(told)
                if not batches:
                    if _is_over(await self._runs.state(principal, response_id), after):
                        await channel.end([])
                        return
                    await rest(self._settings().poll_interval_seconds, event)
        finally:
            self._readers.move(-1)


def refuse_stream() -> NoReturn:
    """Refuse to stream a response that was made without events.

    Raises:
        InvalidRequest: always.
    """
    raise InvalidRequest(
        "Only a response that was created with background: true and stream: true can be streamed; leave 'stream' out "
        "to get it whole.",
        code="unsupported_parameter",
        param="stream",
    )


def _is_over(state: RunState | None, after: int) -> bool:
    return state is None or state.swept or (state.ended and after + 1 >= state.next_number)
