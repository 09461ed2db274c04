"""The numbers of a load run: one record for each turn, in microseconds, and what many of them say.

Locust's own statistics round to milliseconds and then to two digits. What a gateway adds is less than that, so every
sample is kept as it was taken.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, field
from plan import Objectives

OK, INCOMPLETE, FAILED = "ok", "incomplete", "failed"
SHARES = (0.5, 0.9, 0.99)


class Turn(Struct, array_like=True, kw_only=True):
    """One request and its answer; all times in microseconds.

    Attributes:
        kind: of the user who asked.
        began: wall clock, since 1970.
        ended: the same.
        outcome: `ok`, `incomplete` or `failed`.
        ack: from the request to `response.created`.
        ttft: from the request to the first token.
        e2e: from the request to the terminal event, or to the end of a JSON answer.
        gaps: between two tokens; 0 when both came in one read.
        tokens: as the inference server counts them, or the deltas.
        fault: what was wrong, in words that do not change.
        detail: more about it.
        process: who measured.
    """

    kind: str
    began: int
    ended: int = 0
    outcome: str = OK
    ack: int | None = None
    ttft: int | None = None
    e2e: int = 0
    gaps: list[int] = field(default_factory=list)
    tokens: int = 0
    fault: str = ""
    detail: str = ""
    process: str = ""

    def meets(self, objectives: Objectives) -> bool:
        """Tell whether the turn was good: not failed, and within every time it has."""
        mean_gap = sum(self.gaps) / len(self.gaps) if self.gaps else 0
        return (
            self.outcome != FAILED
            and self.e2e <= objectives.e2e_ms * 1000
            and (self.ttft or 0) <= objectives.ttft_ms * 1000
            and mean_gap <= objectives.itl_ms * 1000
        )


class Spread(Struct, frozen=True):
    """Percentiles of one time, in microseconds; NaN when there is no sample."""

    n: int
    p50: float
    p90: float
    p99: float


class Summary(Struct, frozen=True, kw_only=True):
    """Many turns in numbers.

    Attributes:
        ok, incomplete, failed: how many ended so.
        good: how many met the objectives.
        turns_per_second, tokens_per_second, good_per_second: rates over the time looked at.
        ack, ttft, gap, e2e: times of those that did not fail.
    """

    ok: int
    incomplete: int
    failed: int
    good: int
    turns_per_second: float
    tokens_per_second: float
    good_per_second: float
    ack: Spread
    ttft: Spread
    gap: Spread
    e2e: Spread

    @property
    def turns(self) -> int:
        """All of them."""
        return self.ok + self.incomplete + self.failed

    def meets(self, objectives: Objectives) -> bool:
        """Tell whether so many turns were good as must be, and none failed."""
        return self.failed == 0 and self.turns > 0 and self.good >= objectives.share * self.turns


def find_percentile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that at least this share of the values does not exceed; NaN when there are none."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else math.nan


def find_spread(values: Iterable[float]) -> Spread:
    """Return the percentiles of many samples."""
    ordered = sorted(values)  # sorting what is sorted costs next to nothing
    return Spread(len(ordered), *(find_percentile(ordered, share) for share in SHARES))


def summarize(turns: Sequence[Turn], seconds: float, objectives: Objectives) -> Summary:
    """Return turns that ended within so many seconds in numbers."""
    outcomes = Counter(turn.outcome for turn in turns)
    ended = [turn for turn in turns if turn.outcome != FAILED]
    good = sum(turn.meets(objectives) for turn in turns)
    return Summary(
        ok=outcomes[OK],
        incomplete=outcomes[INCOMPLETE],
        failed=outcomes[FAILED],
        good=good,
        turns_per_second=len(ended) / seconds,
        tokens_per_second=sum(turn.tokens for turn in ended) / seconds,
        good_per_second=good / seconds,
        ack=find_spread(turn.ack for turn in ended if turn.ack is not None),
        ttft=find_spread(turn.ttft for turn in ended if turn.ttft is not None),
        gap=find_spread(gap for turn in ended for gap in turn.gaps),
        e2e=find_spread(turn.e2e for turn in ended),
    )


def select(turns: Iterable[Turn], begin: float, end: float) -> list[Turn]:
    """Return the turns that ended between two moments, in microseconds of the wall clock."""
    return [turn for turn in turns if begin <= turn.ended <= end]


def count_faults(turns: Iterable[Turn]) -> list[tuple[str, int, str]]:
    """Return every fault with how often it came and what was told of the first, most frequent first."""
    failed = [turn for turn in turns if turn.outcome == FAILED]
    first: dict[str, str] = {}
    for turn in failed:
        first.setdefault(turn.fault, turn.detail)
    return [(fault, count, first[fault]) for fault, count in Counter(turn.fault for turn in failed).most_common()]


# ---------------------------------------------------------------- files

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Turn).decode


def encode_turns(turns: Iterable[Turn]) -> bytes:
    """Return a line of JSON for each turn."""
    return b"".join(_encode(turn) + b"\n" for turn in turns)


def decode_turns(lines: bytes) -> list[Turn]:
    """Return the turns that lines hold."""
    return [_decode(line) for line in lines.splitlines()]


def read_turns(file: Path) -> Iterator[Turn]:
    """Yield every turn of a file."""
    with file.open("rb") as lines:
        yield from map(_decode, lines)


class Course(Struct, kw_only=True):
    """How a run went, beside its turns; moments are microseconds of the wall clock.

    Attributes:
        began: when the first users began.
        ended: when no user began anything any more.
        steps: of a run in steps, what was held and judged.
        cpu: seconds of CPU and of time of each process that asked.
        objectives_met: users of the highest step that met the objectives; None when there was none, or no steps.
        lost: processes whose last turns never came.
    """

    began: int = 0
    ended: int = 0
    steps: list[dict[str, Any]] = field(default_factory=list)
    cpu: dict[str, tuple[float, float]] = field(default_factory=dict)
    objectives_met: int | None = None
    lost: list[str] = field(default_factory=list)
