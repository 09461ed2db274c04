"""What one connection remembers: each lane's latest response, stored or not, until it fails, advances or closes.

The numbers are rows of the acceptance matrix.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.client import client, create
from harness.engine import Answer as EngineAnswer
from harness.engine import call, in_turn, message, says
from harness.processes import Gateway
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration.turns import (
    Held,
    ask,
    await_begun,
    begin_and_fail,
    deltas,
    echo,
    expect_error,
    expect_failed,
    expect_sound,
    final,
    id_of,
    refuse,
    refused,
    texts_sent,
    told,
)

FAILURES = [pytest.param(refuse(500), id="refused"), pytest.param(begin_and_fail, id="failed in the middle")]
WRONG: list[dict[str, Any]] = [
    {"temperature": 9},
    {"given": [{"type": "function_call_output", "call_id": "call_nobody", "output": "x"}]},
    {"background": True},
]


@pytest.fixture
def model(upstream: Upstream, request: pytest.FixtureRequest) -> str:
    """A model of this test's own that repeats what it is told."""
    return upstream.script(f"session {request.node.name}", echo)


@pytest.fixture
def socket(gateway: Gateway) -> Iterator[WebSocket]:
    with WebSocket(gateway.port) as running:
        yield running


def status_of(gateway: Gateway, response_id: str) -> int:
    with client(gateway.port) as caller:
        return caller.get(f"/v1/responses/{response_id}").status


# ---------------------------------------------------------------- rows 41 to 46: chains of unstored responses


@pytest.mark.checklist(46, 47)
def test_rows_41_to_46_a_chain_on_one_socket(
    start_gateway: Callable[..., Gateway], upstream: Upstream, model: str
) -> None:
    gateway = start_gateway()
    fine = upstream.script("fine deltas", says("x" * 2000, 1))
    with WebSocket(gateway.port) as socket:
        first = told(socket, fine, "q1", store=False)
        second = told(socket, model, "q2", first, store=False)
        assert texts_sent(upstream, model) == ["q1", "x" * 2000, "q2"]
        assert (status_of(gateway, first), status_of(gateway, second), gateway.rows()) == (404, 404, 0)
        stored = told(socket, model, "q3", second)
        assert texts_sent(upstream, model) == ["q1", "x" * 2000, "q2", "you said q2", "q3"]
        assert (status_of(gateway, stored), gateway.rows()) == (200, 1)
        unstored = told(socket, model, "q4", stored, store=False)
        with WebSocket(gateway.port) as other:
            refused(other, model, unstored)
            refused(other, model, second)
            told(other, model, "elsewhere", stored)
    gateway.stop()
    gateway.start("/livez")
    answer = create(gateway.port, {"model": model, "input": "q5", "previous_response_id": stored})
    assert answer.status == 200
    history = ["q1", "x" * 2000, "q2", "you said q2", "q3", "you said q3"]
    assert texts_sent(upstream, model) == [*history, "q5"]
    with WebSocket(gateway.port) as socket:
        refused(socket, model, unstored)
        told(socket, model, "q6", stored, store=False)
        assert texts_sent(upstream, model) == [*history, "q6"]


@pytest.mark.checklist(46)
def test_a_lane_remembers_its_latest_and_storage_the_others(socket: WebSocket, upstream: Upstream, model: str) -> None:
    first = told(socket, model, "q1")
    told(socket, model, "q2", first)
    told(socket, model, "again", first)
    assert texts_sent(upstream, model) == ["q1", "you said q1", "again"]


def test_a_lane_forgets_what_it_went_on_from(socket: WebSocket, model: str) -> None:
    first = told(socket, model, "q1", store=False)
    told(socket, model, "q2", first, store=False)
    refused(socket, model, first)


def test_an_independent_create_takes_the_place_of_the_latest(socket: WebSocket, model: str) -> None:
    first = told(socket, model, "q1", store=False, stream_id="a")
    told(socket, model, "q2", store=False, stream_id="a")
    refused(socket, model, first, stream_id="a")


@pytest.mark.parametrize("child", [True, False], ids=["stored", "unstored"])
def test_both_transports_continue_what_is_stored(
    gateway: Gateway, socket: WebSocket, upstream: Upstream, model: str, child: bool
) -> None:
    parent = create(gateway.port, {"model": model, "input": "q1"}).json["id"]
    response = told(socket, model, "q2", parent, store=child)
    answer = create(gateway.port, {"model": model, "input": "q3", "previous_response_id": response})
    assert answer.status == (200 if child else 400)
    if child:
        assert texts_sent(upstream, model) == ["q1", "you said q1", "q2", "you said q2", "q3"]


def test_the_input_of_a_flattened_chain_can_be_read(gateway: Gateway, socket: WebSocket, model: str) -> None:
    stored = told(socket, model, "q2", told(socket, model, "q1", store=False))
    with client(gateway.port) as caller:
        items = caller.get(f"/v1/responses/{stored}/input_items?order=asc").json["data"]
    assert items[-1]["content"][0]["text"] == "q2"


@pytest.mark.parametrize("store", [True, False])
def test_an_incomplete_response_is_the_latest(socket: WebSocket, upstream: Upstream, model: str, store: bool) -> None:
    half = EngineAnswer([message("half of"), call("f", '{"a', "call_half")], status="incomplete")
    upstream.script(model, in_turn(half, echo))
    first = told(socket, model, "q1", store=store)
    told(socket, model, "q2", first, store=store)
    assert texts_sent(upstream, model) == ["q1", "half of", "q2"]


def test_instructions_and_tools_are_not_carried_on(socket: WebSocket, upstream: Upstream, model: str) -> None:
    tool = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
    first = told(socket, model, "q1", store=False, instructions="be brief", tools=[tool])
    told(socket, model, "q2", first, store=False)
    sent = upstream.calls(model)[-1].body
    assert not sent.get("tools")
    assert not sent.get("instructions")


# ---------------------------------------------------------------- forks


@pytest.mark.parametrize("store", [True, False])
def test_lanes_fork_from_one_parent(socket: WebSocket, upstream: Upstream, model: str, store: bool) -> None:
    parent = told(socket, model, "root", store=store)
    for lane in ("a", "b"):
        socket.create(model, f"to {lane}", stream_id=lane, previous_response_id=parent, store=store)
    forks = {lane: id_of(socket.events_until_terminal(lane)) for lane in ("a", "b")}
    for lane, fork in forks.items():
        told(socket, model, "on", fork, stream_id=lane, store=store)
        assert texts_sent(upstream, model) == ["root", "you said root", f"to {lane}", f"you said to {lane}", "on"]
    told(socket, model, "on", parent, store=store)
    assert texts_sent(upstream, model) == ["root", "you said root", "on"]


def test_a_fork_that_has_begun_outlives_its_parent(socket: WebSocket, upstream: Upstream, model: str) -> None:
    parent = told(socket, model, "root", store=False)
    held = Held(upstream, f"{model} held")
    socket.create(held.model, "fork", stream_id="b", previous_response_id=parent, store=False)
    await_begun(socket, {"b"})
    told(socket, model, "on", parent, store=False)
    refused(socket, model, parent, stream_id="c")
    held.release.set()
    events = socket.events_until_terminal("b")
    expect_sound(events, "b")
    told(socket, model, "further", id_of(events), stream_id="b", store=False)
    assert texts_sent(upstream, model)[:2] == ["root", "you said root"]


def test_a_parent_is_looked_up_when_its_create_starts(socket: WebSocket, upstream: Upstream, model: str) -> None:
    held = Held(upstream, f"{model} held")
    socket.create(held.model, "q1", store=False, stream_id="a")
    await_begun(socket, {"a"})
    parent = socket.unread[0]["response"]["id"]
    socket.create(model, "q2", store=False, stream_id="a", previous_response_id=parent)
    refused(socket, model, parent, stream_id="b")
    held.release.set()
    expect_sound(socket.events_until_terminal("a"), "a")
    expect_sound(socket.events_until_terminal("a"), "a")
    assert texts_sent(upstream, model) == ["q1", "first words and the rest", "q2"]


# ---------------------------------------------------------------- rows 47 to 51: failures


@pytest.mark.checklist(50)
@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize("script", FAILURES[1:])
def test_rows_47_and_48_a_failed_response_is_nowhere(
    gateway: Gateway, socket: WebSocket, upstream: Upstream, model: str, script: object, store: bool
) -> None:
    upstream.script(model, script)
    events = ask(socket, model, store=store)
    expect_failed(events)
    refused(socket, model, id_of(events))
    assert status_of(gateway, id_of(events)) == 404
    assert gateway.rows(model) == 0


@pytest.mark.checklist(48, 49)
@pytest.mark.parametrize("lane", [None, "a"])
@pytest.mark.parametrize("script", FAILURES)
def test_row_49_a_failed_continuation_evicts_its_parent(
    socket: WebSocket, upstream: Upstream, model: str, script: object, lane: str | None
) -> None:
    fields: dict[str, Any] = {"store": False, **({} if lane is None else {"stream_id": lane})}
    parent = told(socket, model, "q1", **fields)
    failing = upstream.script(f"{model} fails", script)
    assert ask(socket, failing, "q2", parent, **fields)[-1]["type"] in {"error", "response.failed"}
    refused(socket, model, parent, **fields)
    refused(socket, model, parent, stream_id="c")
    # Row 51: the lane works on.
    told(socket, model, "q3", told(socket, model, "anew", **fields), **fields)


@pytest.mark.checklist(49)
@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_a_continuation_that_is_refused_evicts_its_parent_too(
    socket: WebSocket, model: str, wrong: dict[str, Any]
) -> None:
    parent = told(socket, model, "q1", store=False)
    (event,) = ask(socket, model, **{"given": "q2", "parent": parent, "store": False, **wrong})
    assert (event["type"], event["status"]) == ("error", 400)
    refused(socket, model, parent)


@pytest.mark.checklist(48, 49)
@pytest.mark.parametrize("script", FAILURES)
def test_row_50_a_failed_fork_keeps_its_parent(
    socket: WebSocket, upstream: Upstream, model: str, script: object
) -> None:
    parent = told(socket, model, "q1", store=False, stream_id="a")
    failing = upstream.script(f"{model} fails", script)
    for lane in ("b", None):
        fields = {} if lane is None else {"stream_id": lane}
        assert ask(socket, failing, "q2", parent, **fields)[-1]["type"] in {"error", "response.failed"}
    told(socket, model, "q3", parent, store=False, stream_id="a")
    assert texts_sent(upstream, model) == ["q1", "you said q1", "q3"]


@pytest.mark.parametrize("script", FAILURES)
def test_a_failed_create_that_names_nobody_evicts_nobody(
    socket: WebSocket, upstream: Upstream, model: str, script: object
) -> None:
    parent = told(socket, model, "q1", store=False)
    assert ask(socket, upstream.script(f"{model} fails", script))[-1]["type"] in {"error", "response.failed"}
    told(socket, model, "q2", parent, store=False)


@pytest.mark.checklist(48, 49)
@pytest.mark.parametrize("script", FAILURES)
def test_a_stored_parent_is_still_in_storage(
    gateway: Gateway, socket: WebSocket, upstream: Upstream, model: str, script: object
) -> None:
    parent = told(socket, model, "q1")
    assert ask(socket, upstream.script(f"{model} fails", script), "q2", parent)[-1]["type"] in {
        "error",
        "response.failed",
    }
    assert status_of(gateway, parent) == 200
    told(socket, model, "q3", parent)
    assert texts_sent(upstream, model) == ["q1", "you said q1", "q3"]


@pytest.mark.checklist(48, 49)
@pytest.mark.parametrize("script", FAILURES)
def test_the_operator_may_keep_parents(
    start_gateway: Callable[..., Gateway], upstream: Upstream, model: str, script: object
) -> None:
    failing = upstream.script(f"{model} fails", script)
    with WebSocket(start_gateway({"websocket.evict_parent_on_failure": "never"}).port) as socket:
        parent = told(socket, model, "q1", store=False)
        assert ask(socket, failing, "q2", parent, store=False)[-1]["type"] in {"error", "response.failed"}
        told(socket, model, "q3", parent, store=False)


def test_what_was_never_admitted_evicts_nothing(
    start_gateway: Callable[..., Gateway], upstream: Upstream, model: str
) -> None:
    limits = {"max_named_lanes": "2", "max_outstanding_bytes": "16KiB"}
    gateway = start_gateway({f"websocket.{key}": value for key, value in limits.items()})
    with WebSocket(gateway.port) as socket:
        parent = told(socket, model, "q1", store=False)
        told(socket, model, "q1", store=False, stream_id="a")
        told(socket, model, "q1", store=False, stream_id="b")
        named = {"previous_response_id": parent}
        for fields, code in (
            ({"stream_id": ""}, "invalid_stream_id"),
            ({"stream_id": "c"}, "websocket_stream_limit_reached"),
            ({"input": "x" * 20_000}, "rate_limit_exceeded"),
            ({"type": "response.foo"}, "unsupported_event"),
        ):
            socket.send({"type": "response.create", "model": model, "input": "q2", **named, **fields})
            assert socket.next_event()["error"]["code"] == code
        socket.send_text(b'{"type":"response.create","previous_response_id":"' + parent.encode())
        expect_error(socket.next_event(), "invalid_json")
        told(socket, model, "q3", parent, store=False)
        assert texts_sent(upstream, model) == ["q1", "you said q1", "q3"]


def test_an_overloaded_gateway_evicts_nothing(
    start_gateway: Callable[..., Gateway], upstream: Upstream, model: str
) -> None:
    gateway = start_gateway({"server.max_concurrent_requests": "1"})
    held = Held(upstream, f"{model} held")
    with WebSocket(gateway.port) as socket:
        parent = told(socket, model, "q1", store=False)
        socket.create(held.model, stream_id="a")
        await_begun(socket, {"a"})
        (event,) = ask(socket, model, "q2", parent, store=False)
        assert event["status"] == 503
        held.release.set()
        expect_sound(socket.events_until_terminal("a"), "a")
        told(socket, model, "q3", parent, store=False)


def test_a_warm_up_can_be_evicted_like_any_other(socket: WebSocket, upstream: Upstream, model: str) -> None:
    events = ask(socket, model, "context", generate=False, store=False)
    failing = upstream.script(f"{model} fails", refuse(400))
    assert ask(socket, failing, "q", id_of(events), store=False)[-1]["type"] == "error"
    refused(socket, model, id_of(events))
    assert deltas(ask(socket, model, "anew")) == "you said anew"
    assert final(events)["output"] == []
