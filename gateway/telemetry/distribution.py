"""How often values of which size were seen, in buckets that several processes can add up."""

from collections.abc import Sequence

from msgspec import Struct


class Distribution(Struct, frozen=True, kw_only=True):
    """Values that were seen, sorted into buckets.

    Attributes:
        count: how many values.
        sum: their sum, in the unit of the values.
        p50: half of the values are at most this, estimated within a bucket; None without any.
        p99: so are 99 of 100.
        max: the largest value, exact unless the process that saw it has been replaced; None without any.
        bounds: upper bounds of the buckets, ascending; one more bucket holds what is larger.
        counts: how many values each bucket holds, one more than bounds.
    """

    count: int = 0
    sum: float = 0.0
    p50: float | None = None
    p99: float | None = None
    max: float | None = None
    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = (0,)

    @property
    def mean(self) -> float | None:
        """The average, None without values."""
        return self.sum / self.count if self.count else None


def distribute(bounds: Sequence[float], counts: Sequence[int], total: float, largest: float) -> Distribution:
    """Return the distribution of values that were counted by bucket.

    Args:
        bounds: upper bounds of all buckets but the last.
        counts: values in each bucket.
        total: sum of the values.
        largest: the largest of them that is known.
    """
    count = sum(counts)
    if not count:
        return Distribution(bounds=tuple(bounds), counts=tuple(counts))
    edges = (0.0, *bounds)
    # Counts may be older than what is known of the largest value.
    largest = max(largest, next(edge for edge, held in zip(reversed(edges), reversed(counts), strict=True) if held))
    return Distribution(
        count=count,
        sum=total,
        p50=_estimate(0.5, edges, counts, largest),
        p99=_estimate(0.99, edges, counts, largest),
        max=largest,
        bounds=tuple(bounds),
        counts=tuple(counts),
    )


def add_up(distributions: Sequence[Distribution]) -> Distribution:
    """Return the distribution of the values of several; of none, an empty one.

    Raises:
        ValueError: they have values in different buckets.
    """
    filled = [one for one in distributions if one.count]
    if not filled:
        return max(distributions, key=lambda one: one.bounds, default=Distribution())
    bounds = filled[0].bounds
    if any(one.bounds != bounds for one in filled):
        raise ValueError("distributions with different buckets cannot be added up")
    counts = [sum(held) for held in zip(*(one.counts for one in filled), strict=True)]
    return distribute(bounds, counts, sum(one.sum for one in filled), max(one.max or 0.0 for one in filled))


def _estimate(share: float, edges: Sequence[float], counts: Sequence[int], largest: float) -> float:
    """Return the value that a share of all is at most, taking those of one bucket for spread evenly over it."""
    left = share * sum(counts)
    tops = (*edges[1:], largest)
    for low, top, held in zip(edges, tops, counts, strict=True):
        if held >= left:
            return low + (min(top, largest) - low) * left / held
        left -= held
    return largest
