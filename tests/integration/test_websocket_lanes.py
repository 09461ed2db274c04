"""Lanes of one WebSocket: in order within, at the same time beside each other, bounded in all."""

from collections.abc import Callable, Iterator

import pytest
from harness.engine import Answer as EngineAnswer
from harness.engine import in_turn, says
from harness.frames import by_lane, by_response
from harness.processes import Gateway
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration.turns import (
    COMPLETED,
    CREATED,
    LONGEST_LANE,
    Held,
    ask,
    await_begun,
    await_calls,
    begin_and_fail,
    deltas,
    echo,
    expect_error,
    expect_sound,
    expect_tags,
    refuse,
    told,
)

STREAM_LIMIT = (
    "This WebSocket connection has reached its maximum number of distinct stream IDs ({}). Reuse an existing stream_id "
    "or open a new WebSocket connection."
)
NARROW = {
    "websocket.max_active": "2",
    "websocket.max_named_lanes": "3",
    "websocket.max_outstanding": "4",
    "websocket.max_outstanding_bytes": "64KiB",
}


@pytest.fixture
def socket(gateway: Gateway) -> Iterator[WebSocket]:
    with WebSocket(gateway.port) as running:
        yield running


@pytest.fixture
def narrow(start_gateway: Callable[..., Gateway]) -> Iterator[WebSocket]:
    """A connection with little room."""
    with WebSocket(start_gateway(NARROW).port) as running:
        yield running


@pytest.fixture
def echoing(upstream: Upstream) -> str:
    return upstream.script("echo", echo)


@pytest.fixture
def held(upstream: Upstream, request: pytest.FixtureRequest) -> Iterator[Held]:
    """A model that waits; it is let go at the end."""
    script = Held(upstream, f"held {request.node.name}")
    yield script
    script.release.set()


# ---------------------------------------------------------------- order and time


@pytest.mark.checklist(21)
def test_a_lane_works_in_order(socket: WebSocket, upstream: Upstream) -> None:
    first = Held(upstream, "waits")
    model = upstream.script("in order", echo)
    socket.create(first.model)
    for number in range(5):
        socket.create(model, f"q{number}")
    await_begun(socket, {None})
    with pytest.raises(TimeoutError):
        socket.events_until_terminal(timeout=0.2)
    assert upstream.calls(model) == []
    first.release.set()
    expect_sound(socket.events_until_terminal())
    for number in range(5):
        events = socket.events_until_terminal()
        expect_sound(events)
        assert deltas(events) == f"you said q{number}"


@pytest.mark.checklist(21)
def test_lanes_work_at_the_same_time(socket: WebSocket, upstream: Upstream) -> None:
    lanes = ("a", "b", "default")
    scripts = {lane: Held(upstream, f"lane {lane}", f"{lane} begins and ends", 8) for lane in lanes}
    socket.create("lane a", stream_id="a")
    socket.create("lane b", stream_id="b")
    socket.create("lane default")
    await_begun(socket, {"a", "b", None})
    # All three have begun before any may end; then they end in another order.
    for lane, name in (("default", None), ("b", "b"), ("a", "a")):
        scripts[lane].release.set()
        events = socket.events_until_terminal(name)
        expect_sound(events, name)
        assert deltas(events) == f"{lane} begins and ends"
        assert not any(event["type"] == COMPLETED for event in socket.unread)
    assert socket.unread == []


@pytest.mark.checklist(43)
def test_every_response_counts_its_events_from_0(socket: WebSocket, echoing: str) -> None:
    for number in range(12):
        socket.create(echoing, f"q{number}", **({"stream_id": f"lane{number % 3}"} if number % 4 else {}))
    events = socket.events_of(12)
    responses = by_response(events)
    assert len(responses) == 12
    for turn in responses.values():
        expect_sound(turn, turn[0].get("stream_id"))


def test_every_event_and_error_of_a_lane_is_tagged_and_no_other(socket: WebSocket, upstream: Upstream) -> None:
    scripts = {"fine": echo, "fails": begin_and_fail, "refused": refuse(400)}
    for name, script in scripts.items():
        upstream.script(f"tagged {name}", script)
    for lane in ("a", None, LONGEST_LANE):
        for name in scripts:
            socket.create(f"tagged {name}", **({} if lane is None else {"stream_id": lane}))
    lanes = by_lane(socket.events_of(9))
    assert set(lanes) == {"a", None, LONGEST_LANE}
    for lane, events in lanes.items():
        expect_tags(events, lane)
        ends = [event["type"] for event in events if event["type"] in {COMPLETED, "response.failed", "error"}]
        assert ends == [COMPLETED, "response.failed", "error"]


@pytest.mark.checklist(24)
@pytest.mark.parametrize("script", [begin_and_fail, refuse(500), refuse(429)], ids=["failed", "refused", "limited"])
def test_a_failure_frees_its_lane_and_no_other(
    socket: WebSocket, upstream: Upstream, held: Held, script: object
) -> None:
    model = upstream.script(f"frees {script}", in_turn(script, says("next")))
    socket.create(held.model, stream_id="other")
    await_calls(upstream, held.model, 1)
    socket.create(model)
    socket.create(model)
    assert socket.events_until_terminal()[-1]["type"] in {"error", "response.failed"}
    events = socket.events_until_terminal()
    expect_sound(events)
    assert deltas(events) == "next"
    held.release.set()
    expect_sound(socket.events_until_terminal("other"), "other")


@pytest.mark.checklist(22)
@pytest.mark.parametrize("queued", [False, True], ids=["on seeing the end", "queued behind it"])
def test_no_handoff_is_missed(socket: WebSocket, upstream: Upstream, queued: bool) -> None:
    model = upstream.script("handoff", says("ok"))
    before = len(upstream.calls(model))
    for _ in range(10 if queued else 300):
        for _ in range(30 if queued else 1):
            socket.create(model, store=False)
        for _ in range(30 if queued else 1):
            assert socket.events_until_terminal()[-1]["type"] == COMPLETED
    assert len(upstream.calls(model)) == before + 300


# ---------------------------------------------------------------- bounds


def test_sixteen_work_and_the_others_wait(socket: WebSocket, upstream: Upstream) -> None:
    script = Held(upstream, "sixteen")
    model = script.model
    for number in range(20):
        socket.create(model, stream_id=f"lane{number}")
    await_calls(upstream, model, 16)
    socket.create(model)
    await_begun(socket, {f"lane{number}" for number in range(16)})
    with pytest.raises(TimeoutError):
        socket.events_until_terminal(timeout=0.2)
    assert len(upstream.calls(model)) == 16
    script.release.set()
    turns = by_response(socket.events_of(21)).values()
    assert len(turns) == 21
    for turn in turns:
        expect_sound(turn, turn[0].get("stream_id"))
    assert len(upstream.calls(model)) == 21


def test_one_lane_takes_one_place_however_much_it_has_queued(narrow: WebSocket, upstream: Upstream, held: Held) -> None:
    model = upstream.script("one place", says("ok"))
    narrow.create(held.model, stream_id="a")
    narrow.create(held.model, stream_id="a")
    await_calls(upstream, held.model, 1)
    expect_sound(ask(narrow, model, stream_id="b"), "b")
    expect_sound(ask(narrow, model))
    assert len(upstream.calls(held.model)) == 1


def test_who_waited_longest_goes_first(narrow: WebSocket, upstream: Upstream) -> None:
    script = Held(upstream, "longest")
    model = script.model
    for lane in ("a", "b", "c"):
        narrow.create(model, lane, stream_id=lane)
    narrow.create(model, "d")
    await_calls(upstream, model, 2)
    script.release.set()
    events = narrow.events_of(4)
    begun = [event.get("stream_id") for event in events if event["type"] == CREATED]
    assert (set(begun[:2]), set(begun[2:])) == ({"a", "b"}, {"c", None})


def test_the_33rd_lane_is_refused(socket: WebSocket, upstream: Upstream) -> None:
    model = upstream.script("lanes", says("ok"))
    for number in range(32):
        told(socket, model, stream_id=f"lane{number}", store=False)
    told(socket, model, store=False)
    (event,) = ask(socket, model, stream_id="lane32", event_id="e1")
    expect_error(event, "websocket_stream_limit_reached", "stream_id", stream_id="lane32", event_id="e1")
    assert event["error"]["message"] == STREAM_LIMIT.format(32)
    told(socket, model, stream_id="lane31", store=False)
    told(socket, model, store=False)
    assert len(upstream.calls(model)) == 35


def test_beyond_the_outstanding_creates(narrow: WebSocket, upstream: Upstream, held: Held, echoing: str) -> None:
    narrow.create(held.model, stream_id="a")
    for number in range(3):
        narrow.create(echoing, f"q{number}", stream_id="a")
    await_calls(upstream, held.model, 1)
    for fields in ({"stream_id": "new"}, {}, {"stream_id": "a"}):
        narrow.create(echoing, event_id="e9", **fields)
        event = narrow.events_until_terminal(fields.get("stream_id"))[-1]
        expect_error(event, "rate_limit_exceeded", None, 429, fields.get("stream_id"), "e9", "rate_limit_error")
        assert "max_outstanding" in event["error"]["message"]
    held.release.set()
    assert narrow.events_until_terminal("a")[-1]["type"] == COMPLETED
    for number in range(3):
        assert deltas(narrow.events_until_terminal("a")) == f"you said q{number}"
    told(narrow, echoing)


def test_beyond_the_outstanding_bytes(narrow: WebSocket, upstream: Upstream, held: Held, echoing: str) -> None:
    narrow.create(held.model, "x" * 40_000, stream_id="a")
    await_calls(upstream, held.model, 1)
    narrow.create(echoing, "y" * 30_000, stream_id="b")
    (event,) = narrow.events_until_terminal("b")
    expect_error(event, "rate_limit_exceeded", None, 429, "b", None, "rate_limit_error")
    assert "max_outstanding_bytes" in event["error"]["message"]
    expect_sound(ask(narrow, echoing, "y" * 1000, stream_id="b"), "b")
    held.release.set()
    expect_sound(narrow.events_until_terminal("a"), "a")
    expect_sound(ask(narrow, echoing, "y" * 30_000, stream_id="b"), "b")


def test_a_refused_create_uses_up_no_lane(narrow: WebSocket, upstream: Upstream, held: Held, echoing: str) -> None:
    narrow.create(held.model, stream_id="a")
    await_calls(upstream, held.model, 1)
    for number in range(3):
        narrow.create(echoing, "y" * 70_000, stream_id=f"refused{number}")
        (event,) = narrow.events_until_terminal(f"refused{number}")
        expect_error(event, "rate_limit_exceeded", None, 429, f"refused{number}", None, "rate_limit_error")
    for lane in ("b", "c"):
        expect_sound(ask(narrow, echoing, stream_id=lane), lane)
    (event,) = ask(narrow, echoing, stream_id="d")
    expect_error(event, "websocket_stream_limit_reached", "stream_id", stream_id="d")
    assert event["error"]["message"] == STREAM_LIMIT.format(3)


@pytest.mark.checklist(44)
def test_each_response_reports_its_own_usage(socket: WebSocket, upstream: Upstream) -> None:
    def used(tokens: int) -> EngineAnswer:
        usage = {
            "input_tokens": tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": 1,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": tokens + 1,
        }
        return EngineAnswer(says("ok").items, usage=usage)

    for tokens in (3, 30, 300):
        upstream.script(f"usage {tokens}", used(tokens))
        socket.create(f"usage {tokens}", stream_id=f"of{tokens}")
    for tokens in (3, 30, 300):
        events = socket.events_until_terminal(f"of{tokens}")
        assert events[-1]["response"]["usage"]["total_tokens"] == tokens + 1
