"""What a report says, of numbers that are known."""

import re
from collections.abc import Mapping, Sequence
from html.parser import HTMLParser

import pytest
from document import Block, Heading, Paragraph, Plot, Table, render_html, render_markdown
from facts import Usage
from measure import FAILED, Course, Turn
from plan import Plan
from report import Facts, Points, Results, build_report

SECOND = 1_000_000
FACTS = Facts(
    title="Load run",
    began="2026-01-02 03:04 UTC",
    target="http://127.0.0.1:9000",
    upstream="a stand-in <no model> | no GPU",
    machine="some machine",
    versions="Locust 2",
    settings="defaults",
    digest="abc123",
    command="make load USERS=2",
)


def draw(name: str, title: str, axes: tuple[str, str], lines: Mapping[str, Points], marks: Points = ()) -> str:
    return f"<svg data-name='{name}'>{len(lines)}</svg>"


def turn(second: float, kind: str = "sse", **changes) -> Turn:
    known = {"ttft": 2_500, "e2e": 10_000, "gaps": [1_250, 1_250], "tokens": 3}
    ended = round(second * SECOND)
    return Turn(kind=kind, began=ended - 10_000, ended=ended, **{**known, **changes})


@pytest.fixture
def results(plan: Plan) -> Results:
    chosen = plan.vary(
        run={"users": 2, "seconds": 10.0, "warmup_seconds": 2.0},
        mix={"json": 1, "sse": 1, "websocket": 1, "lanes": 0, "chain": 0, "websocket_chain": 0},
    )
    turns = [
        turn(1.0, outcome=FAILED, fault="sequence gap", detail="5 instead of 4"),
        *[turn(second) for second in range(3, 11)],
        turn(5.0, outcome="incomplete", ttft=500_000),
        *[turn(4.0, "json", ttft=None, gaps=[], e2e=8_000)] * 2,
        turn(6.5, "websocket", ack=700),
        turn(10.5),
    ]
    course = Course(began=0, ended=10 * SECOND, cpu={"local": (0.5, 10.0)})
    usage = Usage(
        cpu=0.028, reads=7, resident=80 * 2**20, peak=96 * 2**20, build="0.1.0 on Python 3.11.7", machine=0.625
    )
    return Results(plan=chosen, turns=turns, course=course, usage=usage)


@pytest.fixture
def control(results: Results) -> Results:
    turns = [turn(second, ttft=2_000, e2e=9_000) for second in range(3, 9)]
    return Results(plan=results.plan, turns=turns, course=Course(began=0, ended=10 * SECOND, cpu={"local": (1, 10.0)}))


def find_rows(blocks: Sequence[Block], column: str) -> dict[str, list[str]]:
    """Return the rows of the first table with this column, by their first cells."""
    table = next(block for block in blocks if isinstance(block, Table) and column in block.header)
    return {row[0]: list(row[1:]) for row in table.rows}


def find_fact(blocks: Sequence[Block], name: str) -> str:
    rows = [row for block in blocks if isinstance(block, Table) and len(block.header) == 2 for row in block.rows]
    return dict(rows)[name]


def find_texts(blocks: Sequence[Block]) -> str:
    return "\n".join(block.text for block in blocks if isinstance(block, Heading | Paragraph))


def test_what_ended_in_the_measured_time_is_counted(results: Results) -> None:
    blocks = build_report(FACTS, results, None, draw)
    outcomes = find_rows(blocks, "goodput turns/s")
    assert outcomes["sse"] == ["8", "1", "0", "1.1", "3", "1.0", "88.89%"]
    assert outcomes["json"] == ["2", "0", "0", "0.2", "1", "0.2", "100.00%"]
    assert outcomes["all"][:3] == ["11", "1", "0"]
    assert "2 more turns ended outside" in find_texts(blocks)


def test_kinds_that_so_few_users_do_not_have(results: Results) -> None:
    assert "Nobody asked" not in find_texts(build_report(FACTS, results, None, draw))
    fewer = Results(plan=results.plan, turns=[turn(3)], course=results.course)
    blocks = build_report(FACTS, fewer, None, draw)
    assert "Nobody asked as json, websocket: so few" in find_texts(blocks)
    assert list(find_rows(blocks, "goodput turns/s")) == ["sse", "all"]


def test_what_failed_in_the_warm_up_is_told_too(results: Results) -> None:
    blocks = build_report(FACTS, results, None, draw)
    assert find_rows(blocks, "fault") == {"sequence gap": ["1", "5 instead of 4"]}
    assert "14 turns, 1 failed" in blocks[1].text


def test_times_keep_their_microseconds(results: Results) -> None:
    times = find_rows(build_report(FACTS, results, None, draw), "ITL p50")
    assert times["sse"] == ["2.50", "500.00", "500.00", "1.25", "1.25", "1.25", "10.00", "10.00", "10.00"]
    assert times["json"] == [*["-"] * 6, "8.00", "8.00", "8.00"]


def test_a_socket_acknowledges(results: Results) -> None:
    assert find_rows(build_report(FACTS, results, None, draw), "acknowledged p50") == {"websocket": ["0.70"] * 3}


def test_the_difference_to_the_inference_server(results: Results, control: Results) -> None:
    blocks = build_report(FACTS, results, control, draw)
    assert find_rows(blocks, "ITL p50")["asked directly: sse"][0] == "2.00"
    # The table of times has all these columns too, and others between them.
    table = next(block for block in blocks if isinstance(block, Table) and block.header[4:5] == ("E2E p50",))
    rows = {row[0]: list(row[1:]) for row in table.rows}
    assert rows["sse"] == ["+0.50", "+498.00", "+498.00", "+1.00", "+1.00", "+1.00"]
    assert rows["websocket"] == ["+0.50"] * 3 + ["+1.00"] * 3


def test_what_the_gateway_used(results: Results) -> None:
    blocks = build_report(FACTS, results, None, draw)
    assert find_fact(blocks, "gateway CPU per turn") == "2.000 ms"
    assert find_fact(blocks, "database reads per turn") == "0.500"
    assert find_fact(blocks, "gateway memory, at the end and at most") == "80 MiB, 96 MiB"
    assert find_fact(blocks, "CPU of the users' process local") == "5% of one core"
    assert find_fact(blocks, "CPUs of the users' machine busy with whatever ran there") == "62%"


def test_what_was_not_measured_is_called_so(results: Results) -> None:
    unseen = Results(plan=results.plan, turns=results.turns, course=results.course)
    blocks = build_report(FACTS, unseen, None, draw)
    for name in ("gateway CPU per turn", "database reads per turn", "gateway"):
        assert find_fact(blocks, name) == "not measured"
    assert "Not measured: the inference server was not asked directly." in find_texts(blocks)


def test_users_at_their_limit_are_told(results: Results) -> None:
    assert "at their limit" not in find_texts(build_report(FACTS, results, None, draw))
    results.course.cpu["local"] = (9.5, 10.0)
    assert "at their limit" in find_texts(build_report(FACTS, results, None, draw))


def test_a_worker_that_was_lost_is_told(results: Results) -> None:
    assert "last word" not in find_texts(build_report(FACTS, results, None, draw))
    results.course.lost = ["two"]
    assert "No last word came from two" in find_texts(build_report(FACTS, results, None, draw))


def step(users: int, begin: float, end: float, *, met: bool) -> dict:
    return {"users": users, "begin": begin, "end": end, "good_share": 0.9, "failed": 0, "met": met}


def test_steps_and_the_highest_that_was_good(results: Results) -> None:
    results.course.steps = [step(4, 1.5, 4.5, met=True), step(6, 4.5, 8.5, met=True), step(9, 8.5, 10.5, met=False)]
    results.course.objectives_met = 6
    blocks = build_report(FACTS, results, None, draw)
    assert blocks[1].text.startswith("6 users is the highest step that met the objectives.")
    rows = find_rows(blocks, "objectives met")
    assert [(users, row[-1]) for users, row in rows.items()] == [("4", "yes"), ("6", "yes"), ("9", "no")]
    assert rows["4"][:4] == ["1.3", "4", "90.00%", "0"]
    # What follows is of that step: seconds 5 to 8.
    assert find_rows(blocks, "goodput turns/s")["sse"][:2] == ["4", "1"]


def test_no_step_was_good(results: Results) -> None:
    results.course.steps = [step(4, 1.5, 4.5, met=False)]
    blocks = build_report(FACTS, results, None, draw)
    assert blocks[1].text == "No step met the objectives, not even the first with 4 users."


def test_markdown(results: Results, control: Results) -> None:
    text = render_markdown(build_report(FACTS, results, control, draw))
    assert text.startswith("# Load run\n\n14 turns")
    assert "| inference server | a stand-in <no model> \\| no GPU |" in text
    assert "![Time to first token](ttft.svg)" in text
    assert text.endswith("```text\nmake load USERS=2\n```\n")
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        assert len({line.count("|") - line.count("\\|") for line in table.splitlines()}) == 1


class Elements(HTMLParser):
    """Collects the elements of a page and what they refer to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: list[str] = []
        self.references: list[str | None] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        self.references += [value for name, value in attrs if name in {"src", "href", "xlink:href"}]


def test_html_is_one_file(results: Results, control: Results) -> None:
    blocks = build_report(FACTS, results, control, draw)
    page = render_html("Load run", blocks)
    elements = Elements(page)
    assert elements.references == []
    assert {"script", "link", "img"}.isdisjoint(elements.names)
    assert elements.names.count("svg") == sum(isinstance(block, Plot) for block in blocks) == 4
    assert "a stand-in &lt;no model&gt; | no GPU" in page
