"""The numbers of a load run: samples as they were taken, from several processes, and what they say."""

import math
from pathlib import Path

import msgspec
import pytest
from journal import TURNS_FILE, Batch, Journal, Recorder, read_clock, read_course
from measure import (
    FAILED,
    Turn,
    count_faults,
    decode_turns,
    encode_turns,
    find_percentile,
    read_turns,
    select,
    summarize,
)
from plan import Plan


def turn(**changes) -> Turn:
    known = {"kind": "sse", "began": 0, "ended": 5000, "ttft": 1000, "e2e": 5000, "gaps": [2000, 2000], "tokens": 3}
    return Turn(**{**known, **changes})


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_percentiles(share: float, value: int) -> None:
    assert find_percentile(range(100, 0, -1), share) == value


def test_no_samples_have_no_percentile() -> None:
    assert math.isnan(find_percentile([], 0.5))


def test_nothing_is_rounded(plan: Plan) -> None:
    turns = [turn(ttft=1000 + number, gaps=[2345, 2346 + number]) for number in range(101)]
    seen = summarize(decode_turns(encode_turns(turns)), 1.0, plan.slo)
    assert (seen.ttft.p50, seen.ttft.p90, seen.ttft.p99) == (1050, 1090, 1099)
    assert (seen.gap.n, seen.gap.p50, seen.gap.p99) == (202, 2345, 2444)


def test_what_many_turns_say(plan: Plan) -> None:
    turns = [
        *[turn() for _ in range(6)],
        turn(outcome="incomplete", tokens=10),
        turn(ttft=plan.slo.ttft_ms * 1000 + 1),
        turn(outcome=FAILED, fault="sequence gap", ttft=1, e2e=1),
        turn(kind="json", ttft=None, gaps=[], e2e=7000),
    ]
    seen = summarize(turns, 2.0, plan.slo)
    assert (seen.ok, seen.incomplete, seen.failed, seen.turns, seen.good) == (8, 1, 1, 10, 8)
    assert (seen.turns_per_second, seen.tokens_per_second, seen.good_per_second) == (4.5, 17.0, 4.0)
    # What failed took no time that says anything.
    assert (seen.e2e.n, seen.ttft.n, seen.ack.n, seen.e2e.p99) == (9, 8, 0, 7000)


@pytest.mark.parametrize(
    ("changes", "good"),
    [
        ({}, True),
        ({"ttft": 100_000}, True),
        ({"ttft": 100_001}, False),
        ({"gaps": [59_000, 1_000]}, True),
        ({"gaps": [59_000, 1_002]}, False),
        ({"e2e": 2_000_001}, False),
        ({"ttft": None, "gaps": []}, True),
        ({"outcome": FAILED}, False),
        ({"outcome": "incomplete"}, True),
    ],
)
def test_the_objectives_of_one_turn(plan: Plan, changes: dict, good: bool) -> None:
    assert turn(**changes).meets(plan.slo) is good


@pytest.mark.parametrize(
    ("good", "slow", "failed", "met"), [(99, 1, 0, True), (98, 2, 0, False), (99, 0, 1, False), (0, 0, 0, False)]
)
def test_the_objectives_of_all(plan: Plan, good: int, slow: int, failed: int, met: bool) -> None:
    turns = [*[turn()] * good, *[turn(ttft=10**6)] * slow, *[turn(outcome=FAILED)] * failed]
    assert summarize(turns, 1.0, plan.slo).meets(plan.slo) is met


def test_faults_are_counted_with_the_first_of_each() -> None:
    turns = [turn(outcome=FAILED, fault=fault, detail=detail) for fault, detail in ("ax", "by", "bz")]
    assert count_faults([turn(), *turns]) == [("b", 2, "y"), ("a", 1, "x")]


def test_a_moment_decides_what_is_looked_at() -> None:
    turns = [turn(ended=moment) for moment in (9, 10, 20, 21)]
    assert select(turns, 10, 20) == turns[1:3]


def test_several_processes_write_one_file(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "new", memory=60.0)
    recorders = [Recorder(name) for name in ("one", "two")]
    for number, recorder in enumerate(recorders):
        recorder.add(turn(ended=read_clock(), ttft=number))
        recorder.add(turn(ended=read_clock(), outcome=FAILED, fault="timeout"))
        # As it goes over the wire.
        message = msgspec.msgpack.encode(recorder.take(last=number == 0))
        journal.write(msgspec.msgpack.decode(message, type=Batch))
    assert recorders[0].take().lines == b""
    assert journal.counts == {"turns": 4, FAILED: 2}
    assert journal.finished == {"one"}
    assert len(journal.look_back(0, 60)) == 4
    assert journal.look_back(-60, -1) == []
    journal.close()
    kept = list(read_turns(tmp_path / "new" / TURNS_FILE))
    assert [(kept_turn.process, kept_turn.ttft) for kept_turn in kept[::2]] == [("one", 0), ("two", 1)]
    course = read_course(tmp_path / "new")
    assert set(course.cpu) == {"one", "two"}
    assert course.began <= course.ended


def test_a_journal_remembers_for_a_while_only(tmp_path: Path) -> None:
    journal = Journal(tmp_path, memory=10.0)
    recorder = Recorder("one")
    for age in (30, 11, 5):
        recorder.add(turn(ended=read_clock() - age * 1_000_000))
    journal.write(recorder.take())
    assert len(journal.look_back(-3600, 3600)) == 1
    assert journal.counts["turns"] == 3
    journal.close()


def test_a_run_that_begins_anew_forgets(tmp_path: Path) -> None:
    recorder = Recorder("one")
    recorder.add(turn())
    recorder.begin()
    assert recorder.take().lines == b""
