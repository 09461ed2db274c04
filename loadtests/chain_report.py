"""What the numbers of a chain benchmark say: percentiles, slopes, differences, tables."""

import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from measure import find_percentile

_TITLES = {
    "none": "Without a gateway",
    "memory": "Nothing stored",
    "sqlite": "Stored in SQLite",
    "postgres": "Stored in PostgreSQL",
}


class Cell(NamedTuple):
    """One combination that is measured.

    Attributes:
        store: where responses are kept: `memory` (not at all), `sqlite`, `postgres`, or `none` without a gateway.
        transport: `sse`, `websocket`, or `direct` without a gateway.
        turns: length of each chain.
        callers: chains at once, each on a connection of its own.
    """

    store: str
    transport: str
    turns: int
    callers: int

    def __str__(self) -> str:
        return f"{self.store} {self.transport} {self.turns} turns x {self.callers}"


@dataclass
class Tally:
    """What was measured in one cell, over all rounds; times in seconds.

    Attributes:
        wall: how long the callers were at work.
        ttft: time to the first token, by number of the turn.
        e2e: time to the terminal event.
        gaps: time between two tokens.
        tokens: how many arrived.
        used: seconds of CPU, by process.
        asked: `reads` of the database, and `lookups` in the history cache of the gateway.
        faults: what went wrong.
    """

    wall: float = 0.0
    ttft: defaultdict[int, list[float]] = field(default_factory=lambda: defaultdict(list))
    e2e: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    tokens: int = 0
    used: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, number: int, began: float, tokens: Sequence[float], ended: float) -> None:
        """Add one turn: its number in the chain, and when what happened."""
        self.ttft[number].append(tokens[0] - began)
        self.e2e.append(ended - began)
        self.gaps += [later - earlier for earlier, later in pairwise(tokens)]
        self.tokens += len(tokens)


class Slope(NamedTuple):
    """A straight line through points: what it rises by for each step, and the standard error of that."""

    rise: float
    error: float


@dataclass(frozen=True)
class Summary:
    """One cell in numbers; times in milliseconds, CPU and slopes in microseconds, both for each turn.

    Attributes:
        n: turns that succeeded.
        slope: what the median time to the first token rises by from one turn of a chain to the next.
        busy: share of the time for which a CPU was used, by process.
    """

    n: int
    errors: int
    ttft_p50: float
    ttft_p99: float
    gap_p50: float
    gap_p99: float
    e2e_p50: float
    e2e_p99: float
    turns_per_second: float
    tokens_per_second: float
    gateway_cpu: float
    upstream_cpu: float
    client_cpu: float
    reads: float
    lookups: float
    slope: Slope | None
    busy: Mapping[str, float]


def fit_slope(points: Mapping[int, float]) -> Slope | None:
    """Fit a line by least squares; None for fewer than three points, of which no error can be told."""
    if len(points) < 3:
        return None
    line = statistics.linear_regression(list(points), list(points.values()))
    residues = [value - line.intercept - line.slope * place for place, value in points.items()]
    middle = statistics.fmean(points)
    spread = sum((place - middle) ** 2 for place in points)
    return Slope(line.slope, (sum(residue**2 for residue in residues) / (len(points) - 2) / spread) ** 0.5)


def summarize(tally: Tally) -> Summary:
    """Return a cell in numbers."""
    n = len(tally.e2e)
    firsts = [seconds for times in tally.ttft.values() for seconds in times]
    # The first turn continues nothing, so it is no point of the line.
    medians = {number: 1e6 * statistics.median(times) for number, times in sorted(tally.ttft.items()) if number > 1}
    each = max(n, 1)
    return Summary(
        n=n,
        errors=len(tally.faults),
        ttft_p50=1e3 * find_percentile(firsts, 0.5),
        ttft_p99=1e3 * find_percentile(firsts, 0.99),
        gap_p50=1e3 * find_percentile(tally.gaps, 0.5),
        gap_p99=1e3 * find_percentile(tally.gaps, 0.99),
        e2e_p50=1e3 * find_percentile(tally.e2e, 0.5),
        e2e_p99=1e3 * find_percentile(tally.e2e, 0.99),
        turns_per_second=n / tally.wall,
        tokens_per_second=tally.tokens / tally.wall,
        gateway_cpu=1e6 * tally.used["gateway"] / each,
        upstream_cpu=1e6 * tally.used["upstream"] / each,
        client_cpu=1e6 * tally.used["client"] / each,
        reads=tally.asked["reads"] / each,
        lookups=tally.asked["lookups"] / each,
        slope=fit_slope(medians),
        busy={name: used / tally.wall for name, used in tally.used.items()},
    )


def list_cells(summaries: Mapping[Cell, Summary]) -> list[dict[str, Any]]:
    """Return everything as JSON values, with what a WebSocket makes of each number over HTTP, as a ratio."""
    listed = []
    for cell, summary in summaries.items():
        entry = {**cell._asdict(), **asdict(summary)}
        over_http = summaries.get(cell._replace(transport="sse"))
        if cell.transport == "websocket" and over_http is not None:
            entry["to_sse"] = {
                name: getattr(summary, name) / value
                for name, value in asdict(over_http).items()
                if isinstance(value, float) and value
            }
        listed.append(entry)
    return listed


def draw_tables(summaries: Mapping[Cell, Summary]) -> str:
    """Return Markdown: for each store one table of times and one of costs, transports side by side."""
    blocks = []
    for store in dict.fromkeys(cell.store for cell in summaries):
        chosen = {cell: summary for cell, summary in summaries.items() if cell.store == store}
        names = list(dict.fromkeys(cell.transport for cell in chosen))
        blocks += [f"### {_TITLES[store]}", f"Each pair is {' / '.join(names)}." if len(names) > 1 else ""]
        blocks += [_draw(chosen, names, columns) for columns in (_TIMES, _COSTS)]
    return "\n\n".join(block for block in blocks if block) + "\n"


def write_tables(page: Path, text: str, mark: str) -> None:
    """Write tables into a file; one that has them between comments of that mark keeps all the rest."""
    begin, end = f"<!-- {mark}: begin -->", f"<!-- {mark}: end -->"
    old = page.read_text() if page.exists() else ""
    if begin in old and end in old:
        text = f"{old.partition(begin)[0]}{begin}\n\n{text}\n{end}{old.partition(end)[2]}"
    page.write_text(text)


# ---------------------------------------------------------------- tables

_Render = Callable[[Summary], str]
_Compare = Callable[[Summary, Summary], str]


class _Column(NamedTuple):
    """One column: shown for each transport, or, when there are two, what the second makes of the first."""

    title: str
    show: _Render | None = None
    compare: _Compare | None = None


def _number(name: str, digits: int) -> _Render:
    return lambda summary: f"{getattr(summary, name):,.{digits}f}"


def _change(name: str) -> _Compare:
    def compare(first: Summary, second: Summary) -> str:
        return f"{getattr(second, name) / getattr(first, name) - 1:+.0%}" if getattr(first, name) else "-"

    return compare


def _show_slope(summary: Summary) -> str:
    return "-" if summary.slope is None else f"{summary.slope.rise:+.0f} ± {summary.slope.error:.0f}"


def _share(*processes: str) -> _Render:
    return lambda summary: f"{sum(summary.busy.get(name, 0.0) for name in processes):.0%}"


_TIMES = (
    _Column("n", _number("n", 0)),
    _Column("TTFT p50 ms", _number("ttft_p50", 2)),
    _Column("p99", _number("ttft_p99", 1)),
    _Column("change of p50", compare=_change("ttft_p50")),
    _Column("TTFT µs per turn of the chain", _show_slope),
    _Column("inter-token p50 ms", _number("gap_p50", 3)),
    _Column("p99", _number("gap_p99", 2)),
    _Column("E2E p50 ms", _number("e2e_p50", 2)),
    _Column("p99", _number("e2e_p99", 1)),
    _Column("change of p50", compare=_change("e2e_p50")),
)
_COSTS = (
    _Column("turns/s", _number("turns_per_second", 0)),
    _Column("change", compare=_change("turns_per_second")),
    _Column("tokens/s", _number("tokens_per_second", 0)),
    _Column("gateway CPU µs per turn", _number("gateway_cpu", 0)),
    _Column("change", compare=_change("gateway_cpu")),
    _Column("gateway's core busy", _share("gateway")),
    _Column("the other", _share("upstream", "client")),
    _Column("upstream CPU µs per turn", _number("upstream_cpu", 0)),
    _Column("reads per turn", _number("reads", 3)),
    _Column("cache lookups per turn", _number("lookups", 2)),
    _Column("errors", _number("errors", 0)),
)


def _draw(summaries: Mapping[Cell, Summary], transports: Sequence[str], columns: Sequence[_Column]) -> str:
    shown = [column for column in columns if column.show or len(transports) == 2]
    lines = [
        "| turns | callers | " + " | ".join(column.title for column in shown) + " |",
        "|---" * (len(shown) + 2) + "|",
    ]
    for turns, callers in dict.fromkeys((cell.turns, cell.callers) for cell in summaries):
        row = [found for cell, found in summaries.items() if (cell.turns, cell.callers) == (turns, callers)]
        texts = [" / ".join(map(column.show, row)) if column.show else column.compare(*row) for column in shown]
        lines.append(f"| {turns} | {callers} | " + " | ".join(texts) + " |")
    return "\n".join(lines)
