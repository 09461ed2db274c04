"""Events on their way out: encoded once, measured, and kept until the next batch leaves."""

import time
from collections.abc import Iterable

from gateway.engine.delivery import EncodedEvent
from gateway.protocol import codec, events
from gateway.protocol.errors import ResourceLimitExceeded
from gateway.protocol.events import NAMES, Event
from gateway.protocol.limits import Limits
from gateway.protocol.turn import Turn
from gateway.telemetry.metrics import Metrics

# A metric costs as much as an event.
_COUNTED_TOGETHER = 32
_TOLD_DELTAS = frozenset(
    {
        events.OutputTextDelta,
        events.RefusalDelta,
        events.ReasoningTextDelta,
        events.SummaryTextDelta,
        events.FunctionArgumentsDelta,
        events.CustomInputDelta,
        events.McpArgumentsDelta,
    }
)


class Outbox:
    """The events of one response that no batch has taken yet.

    Args:
        turn: numbers the events; gets back the number of one that cannot be sent.
        limits: `max_stream_event_bytes` bounds each event.
        metrics: counts events and times deltas, the first from the making of the outbox.
        overhead: bytes the transport adds to each event, which count as well.

    Attributes:
        began: when it was made, by `time.perf_counter`.
        first_delta: when the first delta was kept, by the same clock; 0 before.
    """

    def __init__(self, turn: Turn, limits: Limits, metrics: Metrics, *, overhead: int = 0) -> None:
        self._largest = 0
        self._turn = turn
        self._limits = limits
        self._overhead = overhead
        self._longest = limits.max_stream_event_bytes - overhead
        self._metrics = metrics
        self._batch: list[EncodedEvent] = []
        self._taken = 0
        self._counted = 0
        self.began = time.perf_counter()
        self.first_delta = 0.0
        self._last_read = 0.0

    def __len__(self) -> int:
        return len(self._batch)

    @property
    def largest(self) -> int:
        """Bytes of the largest event kept, with what the transport adds."""
        return self._largest and self._largest + self._overhead

    @property
    def next_number(self) -> int:
        """The sequence number of the event after the last one kept."""
        return self._taken + len(self._batch)

    def encode(self, event: Event) -> bytes:
        """Return an event as JSON.

        Raises:
            ResourceLimitExceeded: it passes `max_stream_event_bytes`; its number is free again.
        """
        data = codec.encode(event)
        if len(data) > self._longest:
            raise self._refuse(event.sequence_number)
        return data

    def add(self, event: Event) -> None:
        """Keep an event.

        Raises:
            ResourceLimitExceeded: as `encode`.
        """
        kind, data = type(event), codec.encode(event)
        size = len(data)
        if size > self._largest:
            if size > self._longest:
                raise self._refuse(event.sequence_number)
            self._largest = size
        if not self.first_delta and kind in _TOLD_DELTAS:
            self._note_first()
        self._batch.append((NAMES[kind], data))

    def add_encoded(self, event: Event, data: bytes) -> None:
        """Keep an event of which `encode` has made its JSON."""
        self._largest = max(self._largest, len(data))
        self._batch.append((NAMES[type(event)], data))

    def add_delta(self, event: EncodedEvent) -> None:
        """Keep the delta that the turn has just told, encoded already.

        Raises:
            ResourceLimitExceeded: as `encode`.
        """
        size = len(event[1])
        if size > self._largest:
            if size > self._longest:
                raise self._refuse(self._turn.next_number - 1)
            self._largest = size
        if not self.first_delta:
            self._note_first()
        self._batch.append(event)

    def add_first(self, forms: Iterable[Event]) -> None:
        """Keep the first form of an event that fits; the minimal `error` event may always be sent."""
        for event in forms:
            data = codec.encode(event)
            if len(data) <= self._longest or isinstance(event, events.ErrorEvent):
                self.add_encoded(event, data)
                return

    def take(self) -> list[EncodedEvent]:
        """Return what was kept, as one batch."""
        batch, self._batch = self._batch, []
        self._taken += len(batch)
        if self._taken - self._counted >= _COUNTED_TOGETHER:
            self.count()
        return batch

    def take_read(self) -> list[EncodedEvent]:
        """Return what one read of the upstream left, and note how long it was in coming, from the first delta on."""
        batch = self.take()
        if self.first_delta and batch:
            now = time.perf_counter()
            if self._last_read:
                self._metrics.inter_token_tally.note((now - self._last_read) / len(batch), len(batch))
            self._last_read = now
        return batch

    def pause(self) -> None:
        """Take no note of how long the next read is in coming: it is not the engine that is waited for."""
        self._last_read = 0.0

    def _note_first(self) -> None:
        self.first_delta = time.perf_counter()
        self._metrics.defer(self._metrics.ttft_seconds, self.first_delta - self.began)

    def _refuse(self, number: int) -> ResourceLimitExceeded:
        self._turn.rewind(number)
        return self._limits.exceeded("max_stream_event_bytes")

    def count(self) -> None:
        """Bring the metric of events up to date; done now and then, and owed at the end."""
        self._metrics.defer(self._metrics.stream_events_total, self._taken - self._counted)
        self._counted = self._taken
