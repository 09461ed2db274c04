"""The tools themselves: what they claim about hang-ups, cuts and bytes must hold without any gateway between."""

import asyncio
import http.client
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.client import client, create, open_create, read_slowly, read_until
from harness.engine import Answer, call, in_turn, message, reasoning, says
from harness.processes import Process, clean_environment, free_port
from harness.upstream import Reply, Request, Upstream


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


async def stall(request: Request, reply: Reply) -> None:
    await reply.head()
    await reply.send(b"begun")
    await asyncio.sleep(30)


async def cut(request: Request, reply: Reply) -> None:
    await reply.head()
    await reply.send(b"half")
    reply.cut()


def test_the_upstream_notices_a_hang_up(upstream: Upstream) -> None:
    connection = open_create(upstream.port, {"model": upstream.script("stall", stall)})
    read_until(connection, b"begun")
    seen = upstream.await_call("stall")
    assert not seen.left.is_set()
    left_at = time.monotonic()
    connection.close()
    assert seen.seconds_to_notice(left_at) >= 0
    assert seen.ended.wait(20)
    assert not seen.finished


def test_a_caller_that_stays_to_the_end_did_not_hang_up(upstream: Upstream) -> None:
    create(upstream.port, {"model": upstream.script("fine", says("fine"))})
    (seen,) = upstream.calls("fine")
    assert seen.ended.wait(20)
    assert seen.finished
    with pytest.raises(AssertionError, match="still ran"):
        seen.seconds_to_notice(time.monotonic(), timeout=0.05)


def test_a_cut_body_arrives_up_to_the_cut(upstream: Upstream) -> None:
    with pytest.raises(http.client.IncompleteRead) as broken:
        create(upstream.port, {"model": upstream.script("cut", cut)})
    assert broken.value.partial == b"half"


def test_a_slow_reader_reads_every_byte(upstream: Upstream) -> None:
    request = {"model": upstream.script("slow", says("x" * 2000)), "stream": True}
    assert read_slowly(upstream.port, request, 65536) == create(upstream.port, request).body


def test_a_call_that_never_comes_is_a_failure(upstream: Upstream) -> None:
    with pytest.raises(AssertionError, match="no call for nobody"):
        upstream.await_call("nobody", timeout=0.05)


def test_scripts_play_in_turn_on_one_connection(upstream: Upstream) -> None:
    model = upstream.script("turns", in_turn(says("a"), says("b")))
    with client(upstream.port) as caller:
        texts = [caller.create({"model": model, "stream": True}).deltas() for _ in range(3)]
    assert texts == ["a", "b", "b"]


def test_engine_answers_stream_what_they_hold() -> None:
    answer = Answer([reasoning("think"), message("say"), call("f", "{}", "call_1")], chunk=2, repeats=2)
    events = list(answer.events())
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert "".join(e["delta"] for e in events if e["type"] == "response.output_text.delta") == "say"
    assert sum(e["type"] == "response.output_item.done" for e in events) == 6
    assert events[-1]["response"]["output"] == answer.items


def test_exact_deltas() -> None:
    events = Answer([message("abc")], deltas=[["a", "bc"]]).events()
    assert [e["delta"] for e in events if e["type"].endswith("delta")] == ["a", "bc"]


def test_the_environment_of_a_process_holds_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GATEWAY_SERVER__PORT", "AGENTIC_MAX_STREAM_EVENT_BYTES", "OTEL_TRACES_EXPORTER"):
        monkeypatch.setenv(name, "1")
    kept = clean_environment({"GATEWAY_CONFIG": "here"})
    assert [name for name in kept if name.startswith(("GATEWAY_", "AGENTIC_", "OTEL_"))] == ["GATEWAY_CONFIG"]


def test_a_process_that_ends_at_once_shows_its_log(tmp_path: Path) -> None:
    process = Process(["no-such-command"], free_port(), tmp_path / "log")
    with pytest.raises(AssertionError, match="No such command"):
        process.start("/livez")
    assert not process.running
