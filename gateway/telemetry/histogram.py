"""The histograms of this project."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import sub
from typing import Any

from prometheus_client import Histogram as PlainHistogram

from gateway.telemetry.distribution import Distribution, add_up, distribute


class Histogram(PlainHistogram):
    """A histogram that knows its largest value, and takes many at once.

    One by one, each costs a walk along the buckets and two locks.

    Attributes:
        largest: the largest value observed, 0 before the first.
    """

    largest: float = 0.0

    def observe(self, amount: float, exemplar: dict[str, str] | None = None) -> None:
        """Observe one value."""
        self.largest = max(self.largest, amount)
        super().observe(amount, exemplar)

    def observe_all(self, amounts: Sequence[float]) -> None:
        """Observe the values, in any order, at least one."""
        # Sorted once, they are looked into once for each bucket, of which there are fewer.
        ordered = sorted(amounts)
        below = [bisect_right(ordered, bound) for bound in self._upper_bounds]
        self.add([*map(sub, below, [0, *below])], sum(ordered), ordered[-1])

    @property
    def bounds(self) -> Sequence[float]:
        """Upper bounds of the buckets, the last of which is infinite."""
        return self._upper_bounds

    def add(self, counts: Sequence[int], total: float, largest: float) -> None:
        """Add values by how many each bucket gets, their sum and the largest."""
        self.largest = max(self.largest, largest)
        self._sum.inc(total)
        for bucket, count in zip(self._buckets, counts, strict=True):
            if count:
                bucket.inc(count)

    def read(self) -> Distribution:
        """Return what this process observed, over all labels."""
        if self._labelnames and not self._labelvalues:
            children: Iterable[Any] = [*self._metrics.values()]
            return add_up([child.read() for child in children])
        counts = [int(bucket.get()) for bucket in self._buckets]
        return distribute(self._upper_bounds[:-1], counts, self._sum.get(), self.largest)


class Tally:
    """Takes many values for a histogram without labels as plain numbers, on the event loop alone.

    Args:
        family: where they come to be when the metrics are read.
    """

    def __init__(self, family: Histogram) -> None:
        self._family = family
        self._bounds = family.bounds
        self._counts = [0] * len(self._bounds)
        self._sum = 0.0
        self._largest = 0.0

    def note(self, amount: float, times: int) -> None:
        """Observe a value several times."""
        self._counts[bisect_left(self._bounds, amount)] += times
        self._sum += amount * times
        self._largest = max(self._largest, amount)

    def settle(self) -> None:
        """Hand over what was noted."""
        self._family.add(self._counts, self._sum, self._largest)
        self._counts = [0] * len(self._bounds)
        self._sum = self._largest = 0.0
