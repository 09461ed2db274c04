"""What a load run says: a document of the setup, the outcomes, the times and the costs."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from document import Block, Code, Heading, Paragraph, Plot, Table
from facts import Usage
from measure import SHARES, Course, Spread, Summary, Turn, count_faults, find_percentile, select, summarize
from msgspec import Struct
from plan import Plan

Points = Sequence[tuple[float, float]]


class Draw(Protocol):
    """Makes a plot; see `plots.draw_lines`."""

    def __call__(
        self, name: str, title: str, axes: tuple[str, str], lines: Mapping[str, Points], marks: Points = ()
    ) -> str: ...


DIRECT = "asked directly: "
_NOTHING = "not measured"
_BUSY = 0.9
_CURVE = (0, *range(10, 90, 5), *range(90, 100), 99.5, 99.8, 99.9)
_MARKS = (0, 50, 90, 99, 99.9)


class Facts(Struct, frozen=True, kw_only=True):
    """What was run.

    Attributes:
        title: of the report.
        began: when, for people.
        target: who was asked.
        upstream: what inference server is behind it, in the words of whoever ran it.
        machine: where the users ran.
        versions: of what asked.
        settings: of a gateway that was started for the run.
        digest: what tells the plan from others.
        command: that does it again.
    """

    title: str
    began: str
    target: str
    upstream: str
    machine: str
    versions: str
    settings: str
    digest: str
    command: str


class Results(Struct, frozen=True, kw_only=True):
    """What was measured.

    Attributes:
        plan: what was to be done.
        turns: all of them.
        course: how it went.
        usage: of the gateway, over all turns.
    """

    plan: Plan
    turns: Sequence[Turn]
    course: Course
    usage: Usage = Usage()

    @property
    def window(self) -> tuple[float, float]:
        """Between which moments turns are measured: after the warm-up, or of the highest step that was good."""
        course = self.course
        if course.steps:
            met = [step for step in course.steps if step["users"] == course.objectives_met and step["met"]]
            step = (met or course.steps)[0]
            return course.began + step["begin"] * 1e6, course.began + step["end"] * 1e6
        return course.began + self.plan.run.warmup_seconds * 1e6, course.ended

    @property
    def kinds(self) -> list[str]:
        """The kinds of users who asked anything."""
        seen = {turn.kind for turn in self.turns}
        return [kind for kind in self.plan.weights if kind in seen]

    def summarize(self) -> dict[str, Summary]:
        """Return what was measured in the window, by kind of user, and `all` together."""
        begin, end = self.window
        chosen = select(self.turns, begin, end)
        kinds = {kind: [turn for turn in chosen if turn.kind == kind] for kind in self.kinds}
        kinds["all"] = chosen
        seconds = max((end - begin) / 1e6, 1e-6)
        return {kind: summarize(turns, seconds, self.plan.slo) for kind, turns in kinds.items()}


def build_report(facts: Facts, results: Results, control: Results | None, draw: Draw) -> list[Block]:
    """Return the whole document.

    Args:
        facts: what was run.
        results: what was measured.
        control: what was measured when the inference server was asked directly; None when it was not.
        draw: makes a plot.
    """
    through = results.summarize()
    direct = {} if control is None else control.summarize()
    return [
        Heading(facts.title, 1),
        Paragraph(_conclude(results, through["all"])),
        *_list_facts(facts, results),
        *_list_steps(results),
        Heading("Outcomes"),
        *_list_outcomes(results, through),
        *_list_faults(results, control),
        Heading("Times in milliseconds"),
        *_list_times(through, direct),
        *_list_differences(through, direct),
        Heading("What it took"),
        *_list_costs(results, control),
        Heading("Plots"),
        *_plot(results, control, draw),
        Heading("Do it again"),
        Code(facts.command),
    ]


def _conclude(results: Results, seen: Summary) -> str:
    failed = sum(1 for _, count, _ in count_faults(results.turns) for _ in range(count))
    steps = results.course.steps
    if steps and results.course.objectives_met is None:
        return f"No step met the objectives, not even the first with {steps[0]['users']} users."
    begin = f"{results.course.objectives_met} users is the highest step that met the objectives. " if steps else ""
    return (
        f"{begin}{len(results.turns):,} turns, {failed} failed; {seen.turns_per_second:,.1f} turns and "
        f"{seen.tokens_per_second:,.0f} tokens a second, TTFT {_ms(seen.ttft.p50)} ms at the median and "
        f"{_ms(seen.ttft.p99)} ms at p99."
    )


def _list_facts(facts: Facts, results: Results) -> Iterator[Block]:
    plan = results.plan
    run, slo = plan.run, plan.slo
    users = {
        "ramp": f"from {plan.ramp.first_users} to {run.users} users over {run.seconds:g} s",
        "steps": f"from {plan.steps.first_users} users on {plan.steps.factor:g} times as many with each step, "
        f"of which {plan.steps.hold_seconds:g} s are measured",
        "manual": "as Locust was told",
    }.get(run.shape, f"{run.users} users for {run.seconds:g} s, the first {run.warmup_seconds:g} s not measured")
    objectives = (
        f"{slo.share:.1%} of turns with TTFT ≤ {slo.ttft_ms:g} ms, mean inter-token ≤ {slo.itl_ms:g} ms, "
        f"E2E ≤ {slo.e2e_ms:g} ms; none failed"
    )
    rows = [
        ("when", facts.began),
        ("target", facts.target),
        ("inference server", facts.upstream),
        ("model", plan.request.model),
        ("gateway", results.usage.build or _NOTHING),
        ("its settings", facts.settings),
        ("load", users),
        ("mix", ", ".join(_describe_kind(kind, plan) for kind in plan.weights)),
        ("objectives", objectives),
        ("machine of the users", facts.machine),
        ("versions", facts.versions),
        ("configuration hash", facts.digest),
    ]
    yield Table(("", ""), rows)
    yield Paragraph("All figures are of this inference server and this machine, and say nothing of any other.")


def _describe_kind(kind: str, plan: Plan) -> str:
    what = {"lanes": f" of {plan.lanes.count}", "chain": f" of {plan.chain.turns} turns"}
    return f"{kind}{what.get(kind.removeprefix('websocket_'), '')}: {plan.weights[kind]}"


def _list_steps(results: Results) -> Iterator[Block]:
    if not results.course.steps:
        return
    yield Heading("Steps")
    rows = []
    for step in results.course.steps:
        began = results.course.began
        turns = select(results.turns, began + step["begin"] * 1e6, began + step["end"] * 1e6)
        seen = summarize(turns, step["end"] - step["begin"], results.plan.slo)
        rows.append(
            (
                str(step["users"]),
                f"{seen.turns_per_second:,.1f}",
                f"{seen.tokens_per_second:,.0f}",
                f"{step['good_share']:.2%}",
                str(step["failed"]),
                *(_ms(time) for time in (seen.ttft.p50, seen.ttft.p99, seen.e2e.p99)),
                "yes" if step["met"] else "no",
            )
        )
    yield Table(
        ("users", "turns/s", "tokens/s", "good", "failed", "TTFT p50 ms", "p99", "E2E p99 ms", "objectives met"), rows
    )
    if results.course.objectives_met is not None:
        yield Paragraph(f"Below: the step with {results.course.objectives_met} users.")


def _list_outcomes(results: Results, through: Mapping[str, Summary]) -> Iterator[Block]:
    rows = [
        (
            kind,
            f"{seen.ok:,}",
            f"{seen.incomplete:,}",
            f"{seen.failed:,}",
            f"{seen.turns_per_second:,.1f}",
            f"{seen.tokens_per_second:,.0f}",
            f"{seen.good_per_second:,.1f}",
            f"{seen.good / seen.turns:.2%}" if seen.turns else "-",
        )
        for kind, seen in through.items()
    ]
    yield Table(("users", "ok", "incomplete", "failed", "turns/s", "tokens/s", "goodput turns/s", "good"), rows)
    absent = [kind for kind in results.plan.weights if kind not in results.kinds]
    if absent:
        yield Paragraph(f"Nobody asked as {', '.join(absent)}: so few users do not have all kinds.")
    outside = len(results.turns) - through["all"].turns
    if outside:
        yield Paragraph(f"{outside:,} more turns ended outside of the time that was measured.")


def _list_faults(results: Results, control: Results | None) -> Iterator[Block]:
    faults = [(fault, f"{count:,}", detail) for fault, count, detail in count_faults(results.turns)]
    if control is not None:
        faults += [(DIRECT + fault, f"{count:,}", detail) for fault, count, detail in count_faults(control.turns)]
    if faults:
        yield Heading("Faults, over the whole run")
        yield Table(("fault", "turns", "the first"), faults)


def _list_times(through: Mapping[str, Summary], direct: Mapping[str, Summary]) -> Iterator[Block]:
    rows = {**through, **{DIRECT + kind: seen for kind, seen in direct.items() if kind != "all"}}
    names = [f"{name} p{share * 100:g}" for name in ("TTFT", "ITL", "E2E") for share in SHARES]
    yield Table(
        ("users", *names),
        [
            (kind, *_percentiles(seen.ttft), *_percentiles(seen.gap), *_percentiles(seen.e2e))
            for kind, seen in rows.items()
        ],
    )
    acked = {kind: seen.ack for kind, seen in through.items() if kind in {"websocket", "lanes", "websocket_chain"}}
    if acked:
        yield Paragraph("On a WebSocket, from a create to its response.created:")
        yield Table(
            ("users", *(f"acknowledged p{share * 100:g}" for share in SHARES)),
            [(kind, *_percentiles(spread)) for kind, spread in acked.items()],
        )


class _Pair(NamedTuple):
    kind: str
    through: Summary
    direct: Summary


def _list_differences(through: Mapping[str, Summary], direct: Mapping[str, Summary]) -> Iterator[Block]:
    # A chain sends a history along, so there is nothing to compare it with.
    compared = {"json": "json", "sse": "sse", "websocket": "sse", "lanes": "sse"}
    pairs = [
        _Pair(kind, through[kind], direct[other])
        for kind, other in compared.items()
        if kind in through and other in direct
    ]
    yield Heading("Difference to the inference server asked directly, in milliseconds")
    if not pairs:
        yield Paragraph(f"{_NOTHING.capitalize()}: the inference server was not asked directly.")
        return
    yield Table(
        ("users", *(f"{name} p{share * 100:g}" for name in ("TTFT", "E2E") for share in SHARES)),
        [
            (
                pair.kind,
                *_differences(pair.through.ttft, pair.direct.ttft),
                *_differences(pair.through.e2e, pair.direct.e2e),
            )
            for pair in pairs
        ],
    )
    yield Paragraph(
        "Percentile minus percentile, of two runs one after the other with as many requests at once. "
        "Streams of every kind are compared with event streams."
    )


def _list_costs(results: Results, control: Results | None) -> Iterator[Block]:
    usage, turns = results.usage, max(len(results.turns), 1)
    rows = [
        ("gateway CPU per turn", _NOTHING if usage.cpu is None else f"{1000 * usage.cpu / turns:.3f} ms"),
        ("gateway memory, at the end and at most", f"{_mib(usage.resident)}, {_mib(usage.peak)}"),
        ("database reads per turn", _NOTHING if usage.reads is None else f"{usage.reads / turns:.3f}"),
    ]
    machine = "CPUs of the users' machine busy with whatever ran there"
    rows += [(machine, _NOTHING if usage.machine is None else f"{usage.machine:.0%}")]
    busy = {
        f"{which}CPU of the users' process {name}": cpu / seconds
        for which, run in (("", results), (DIRECT, control))
        for name, (cpu, seconds) in (run.course.cpu if run else {}).items()
        if seconds
    }
    yield Table(("", ""), [*rows, *((name, f"{share:.0%} of one core") for name, share in busy.items())])
    if results.course.lost:
        yield Paragraph(f"No last word came from {', '.join(results.course.lost)}: turns of theirs may be missing.")
    if any(share > _BUSY for share in busy.values()):
        yield Paragraph("Users' own processes were at their limit: the times hold their delays too. Take more workers.")


def _plot(results: Results, control: Results | None, draw: Draw) -> Iterator[Block]:
    begin, end = results.window
    chosen = select(results.turns, begin, end)
    lines = {kind: [turn for turn in chosen if turn.kind == kind] for kind in results.kinds}
    if control is not None:
        inside = select(control.turns, *control.window)
        lines |= {DIRECT + kind: [turn for turn in inside if turn.kind == kind] for kind in control.kinds}
    # Whatever has no tokens last, so that the others have the same colours in every plot.
    lines = dict(sorted(lines.items(), key=lambda line: line[0].endswith("json")))
    for name, title, read in (
        ("ttft", "Time to first token", lambda turn: () if turn.ttft is None else (turn.ttft,)),
        ("itl", "Time between two tokens", lambda turn: turn.gaps),
        ("e2e", "Time to the end", lambda turn: (turn.e2e,)),
    ):
        samples = {label: [value for turn in turns for value in read(turn)] for label, turns in lines.items()}
        curves = {label: _trace(values) for label, values in samples.items() if values}
        if curves:
            yield Plot(
                name,
                title,
                draw(name, title, ("percentile", "ms"), curves, [(_stretch(mark), mark) for mark in _MARKS]),
            )
    yield _plot_course(results, draw)


def _plot_course(results: Results, draw: Draw) -> Plot:
    began = results.course.began
    seconds: dict[int, list[Turn]] = {}
    for turn in results.turns:
        seconds.setdefault(int((turn.ended - began) / 1e6), []).append(turn)
    # The last second is seldom a whole one.
    whole = [second for second in sorted(seconds) if (second + 1) * 1e6 <= results.course.ended - began]
    lines = {
        "turns/s": [(second, len(seconds[second])) for second in whole],
        "failed/s": [(second, sum(turn.outcome == "failed" for turn in seconds[second])) for second in whole],
    }
    title = "The course of the run"
    return Plot("course", title, draw("course", title, ("s", "turns/s"), lines))


def _trace(values: Sequence[float]) -> list[tuple[float, float]]:
    ordered = sorted(values)
    return [(_stretch(share), round(find_percentile(ordered, share / 100) / 1000, 3)) for share in _CURVE]


def _stretch(percent: float) -> float:
    """Return where a percentile lies: from 90 to 99 it is as far as from 0 to 90, for the tail is what matters."""
    return -math.log10(1 - percent / 100)


def _percentiles(spread: Spread) -> list[str]:
    return [_ms(spread.p50), _ms(spread.p90), _ms(spread.p99)]


def _differences(through: Spread, direct: Spread) -> list[str]:
    pairs = ((through.p50, direct.p50), (through.p90, direct.p90), (through.p99, direct.p99))
    return ["-" if math.isnan(one - other) else f"{(one - other) / 1000:+.2f}" for one, other in pairs]


def _ms(microseconds: float) -> str:
    return "-" if math.isnan(microseconds) else f"{microseconds / 1000:,.2f}"


def _mib(value: float | None) -> str:
    return _NOTHING if value is None else f"{value / 2**20:,.0f} MiB"
