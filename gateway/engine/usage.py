"""What each principal has the inference servers do: counted in memory, and added to the database now and then."""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from datetime import date, timedelta
from heapq import nlargest
from typing import Final

from gateway.config.schema import StorageConfig
from gateway.ports import Clock, Ids, Store, UsageCount, UsageFlush
from gateway.protocol.errors import GatewayError
from gateway.protocol.response import Usage
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.names import LOGGER_ENGINE

_DAY_SECONDS: Final = 86_400
_EPOCH: Final = date(1970, 1, 1)
_MODEL_CHARS: Final = 128
# Sums of it fit into a database's integers for a long time; no server counts so far.
_MOST_TOKENS: Final = 10**12
# How many principals are told apart since the start, for the status.
_REMEMBERED: Final = 1000

_logger = logging.getLogger(LOGGER_ENGINE)


class Tally:
    """Tokens and responses, summed up."""

    __slots__ = ("cached", "input", "output", "reasoning", "responses")

    def __init__(self) -> None:
        self.responses = self.input = self.cached = self.output = self.reasoning = 0

    @property
    def tokens(self) -> int:
        """Read and made."""
        return self.input + self.output

    def count(self, usage: Usage) -> None:
        """Add one response."""
        self.responses += 1
        self.input += usage.input_tokens
        self.cached += usage.input_tokens_details.cached_tokens
        self.output += usage.output_tokens
        self.reasoning += usage.output_tokens_details.reasoning_tokens

    def add(self, other: "Tally") -> None:
        """Add what another has."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class UsageBook:
    """Counts tokens by principal, day and model, and hands the counts to the store.

    A process that dies takes along what it counted since it last did so.

    Args:
        store: adds up what all processes count.
        clock: tells the day.
        ids: tells one flush from another.
        metrics: what was lost, and what failed.
        config: how often, and how much may wait.
    """

    def __init__(self, store: Store, clock: Clock, ids: Ids, metrics: Metrics, config: StorageConfig) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._metrics = metrics
        self._tallies: dict[tuple[str, str, int], Tally] = {}
        self._pending: UsageFlush | None = None
        self._totals: dict[str, Tally] = {}
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.reconfigure(config)

    def reconfigure(self, config: StorageConfig) -> None:
        """Use other settings from now on."""
        self._interval = config.usage_interval_seconds
        self._max_entries = config.usage_max_entries
        self._wake.set()

    def count(self, principal: str, model: str, usage: Usage) -> None:
        """Count one response.

        Args:
            principal: who asked.
            model: the one asked for.
            usage: its tokens, as the inference server told them.
        """
        if not self._interval:
            return
        key = (principal, model[:_MODEL_CHARS], int(self._clock.now()) // _DAY_SECONDS)
        tally = self._tallies.get(key)
        if tally is None:
            if len(self._tallies) >= self._max_entries:
                self._metrics.usage_lost_responses_total.inc()
                return
            tally = self._tallies[key] = Tally()
            if len(self._tallies) == self._max_entries:
                self._wake.set()
        tally.count(usage)

    def list_largest(self, most: int) -> list[tuple[str, Tally]]:
        """Return the principals with the most tokens since the start, and their sums, the largest first.

        Of more than some hundred principals it is a good guess.
        """
        sums: dict[str, Tally] = {}
        _add_up(sums, self._totals.items())
        _add_up(sums, ((principal, tally) for (principal, _, _), tally in self._tallies.items()))
        return _find_largest(sums, most)

    async def start(self) -> None:
        """Begin to hand over what is counted, every `[storage] usage_interval_seconds`."""
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Hand over what is left. Takes as long as the store does for one write; never raises."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))
            self._task = None
        await self.flush()

    async def flush(self) -> None:
        """Hand over everything that was counted; what is not taken waits for the next time."""
        while (flush := self._pending or self._cut()) is not None:
            try:
                await self._store.add_usage(flush)
            except GatewayError as error:
                self._metrics.usage_failures_total.inc()
                _logger.warning("the tokens of principals were not stored, which is tried again: %s", error.message)
                return
            self._pending = None

    async def _run(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval or None):
                    await self._wake.wait()
            self._wake.clear()
            await self.flush()

    def _cut(self) -> UsageFlush | None:
        """Return what was counted, and begin to count anew; None if that is nothing."""
        tallies, self._tallies = self._tallies, {}
        if not tallies:
            return None
        _add_up(self._totals, ((principal, tally) for (principal, _, _), tally in tallies.items()))
        if len(self._totals) > _REMEMBERED:
            self._totals = dict(_find_largest(self._totals, _REMEMBERED // 2))
        counts = [
            _build_count(principal, model, _EPOCH + timedelta(days=day), tally)
            for (principal, model, day), tally in tallies.items()
        ]
        # Kept until the store has it: handed over again it is the same, and counts once.
        self._pending = UsageFlush(id=self._ids.mint("usage"), counts=counts)
        return self._pending


def _build_count(principal: str, model: str, day: date, tally: Tally) -> UsageCount:
    return UsageCount(
        principal=principal,
        day=day,
        model=model,
        responses=tally.responses,
        input_tokens=min(tally.input, _MOST_TOKENS),
        cached_tokens=min(tally.cached, _MOST_TOKENS),
        output_tokens=min(tally.output, _MOST_TOKENS),
        reasoning_tokens=min(tally.reasoning, _MOST_TOKENS),
    )


def _add_up(sums: dict[str, Tally], parts: Iterable[tuple[str, Tally]]) -> None:
    for principal, part in parts:
        total = sums.get(principal)
        if total is None:
            total = sums[principal] = Tally()
        total.add(part)


def _find_largest(sums: dict[str, Tally], most: int) -> list[tuple[str, Tally]]:
    return nlargest(most, sums.items(), key=lambda entry: entry[1].tokens)
