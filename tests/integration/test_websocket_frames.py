"""What a client may send on a WebSocket, and what it is told when it sends anything else: the connection stays open."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from harness.client import Client, client, create
from harness.engine import Answer as EngineAnswer
from harness.engine import call, in_turn, says
from harness.frames import BINARY, PONG, TEXT
from harness.processes import Gateway
from harness.upstream import Upstream
from harness.websocket import HandshakeRefused, WebSocket
from integration.turns import (
    LONGEST_LANE,
    anonymous,
    ask,
    deltas,
    echo,
    expect_error,
    expect_sound,
    expect_tags,
    final,
    judge,
    texts_sent,
    told,
)

INVALID_LANE = (
    "The 'stream_id' field must be a non-empty string with at most 256 characters and may only contain letters, "
    "numbers, underscores, hyphens, and periods."
)
BETA = {"OpenAI-Beta": "responses_multi_agent=v1"}
NOBODY = "resp_" + "0" * 32
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
# Wrong in the same way whatever brings them.
WRONG_BODIES: list[dict[str, Any]] = [
    {"model": None},
    {"model": 7},
    {"model": ""},
    {"input": None},
    {"input": 7},
    {"input": [7]},
    {"input": [{"role": "nobody", "content": "hi"}]},
    {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
    {"input": [{"type": "function_call_output", "call_id": "call_1", "output": "nobody called"}]},
    {"input": [{"type": "item_reference", "id": "msg_nobody"}]},
    {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "https://example.invalid/a.png"}]}]},
    {"temperature": 9},
    {"temperature": "warm"},
    {"max_output_tokens": 0},
    {"tools": {}},
    {"tools": [{"type": "function"}]},
    {"tool_choice": 7},
    {"metadata": {"a": 7}},
    {"store": "yes"},
    {"previous_response_id": 7},
    {"previous_response_id": NOBODY},
    {"previous_response_id": ""},
    {"conversation": 7},
    {"conversation": {"id": 7}},
    {"conversation": "conv_1", "previous_response_id": NOBODY},
    {"prompt": {"id": "pmpt_1"}},
    {"context_management": [{"type": "other"}]},
    {"truncation": "sometimes"},
    {"request_id": "mine"},
]


@pytest.fixture
def model(upstream: Upstream) -> str:
    return upstream.script("frames echo", echo)


@pytest.fixture
def socket(gateway: Gateway, model: str) -> Iterator[WebSocket]:
    """A connection that is as good after the test as before."""
    with WebSocket(gateway.port) as running:
        yield running
        told(running, model, "still there")


# ---------------------------------------------------------------- the upgrade


@pytest.mark.checklist(1, 7)
def test_upgrades_and_posts_share_the_path(gateway: Gateway, socket: WebSocket, model: str) -> None:
    assert socket.handshake["x-request-id"]
    assert "sec-websocket-extensions" not in socket.handshake
    response_id = told(socket, model)
    with client(gateway.port) as caller:
        assert caller.create({"model": model, "input": "hi"}).status == 200
        assert caller.get(f"/v1/responses/{response_id}").json["id"] == response_id


@pytest.mark.checklist(2)
def test_a_plain_get_is_asked_to_upgrade(gateway: Gateway) -> None:
    with client(gateway.port) as caller:
        answer = caller.get("/v1/responses")
        assert answer.status == 426
        assert answer.headers["upgrade"].lower() == "websocket"
        assert (answer.error["type"], answer.error["code"]) == ("invalid_request_error", "upgrade_required")
        assert answer.error["message"]
        assert caller.get("/v1/models").status == 200


@pytest.mark.checklist(4)
def test_where_it_is_switched_off_nobody_gets_a_socket(start_gateway: Callable[..., Gateway], model: str) -> None:
    gateway = start_gateway({"websocket.enabled": "false"})
    with pytest.raises(HandshakeRefused) as refusal:
        WebSocket(gateway.port)
    assert refusal.value.answer.status == 426
    assert refusal.value.answer.error["type"] == "invalid_request_error"
    assert refusal.value.answer.error["code"]
    with client(gateway.port) as caller:
        assert caller.get("/v1/responses").status == 426
        assert caller.create({"model": model, "input": "hi"}).status == 200


@pytest.mark.checklist(6)
@pytest.mark.parametrize("headers", [{"Origin": "https://evil.example"}, {"Host": "evil.example"}], ids=str)
def test_who_may_not_call_gets_no_socket(gateway: Gateway, headers: dict[str, str]) -> None:
    with pytest.raises(HandshakeRefused) as refusal:
        WebSocket(gateway.port, headers=headers)
    assert refusal.value.answer.status == 403
    assert refusal.value.answer.error["code"]


def test_a_local_page_gets_a_socket(gateway: Gateway, model: str) -> None:
    with WebSocket(gateway.port, headers={"Origin": "http://localhost:3000"}) as socket:
        told(socket, model)


@pytest.mark.parametrize("value", ["responses_websockets=2026-02-06", "something, responses_websockets=2026-02-06"])
def test_what_clients_offer_is_passed_over(gateway: Gateway, model: str, value: str) -> None:
    offers = {"OpenAI-Beta": value, "Sec-WebSocket-Extensions": "permessage-deflate; client_max_window_bits"}
    with WebSocket(gateway.port, headers={**offers, "Sec-WebSocket-Protocol": "realtime"}) as socket:
        assert "sec-websocket-protocol" not in socket.handshake
        told(socket, model)


@pytest.mark.checklist(3)
def test_the_model_of_the_upgrade_is_a_default(gateway: Gateway, upstream: Upstream) -> None:
    for name in ("upgraded", "of the frame"):
        upstream.script(name, says(name))
    with WebSocket(gateway.port, "/v1/responses?model=upgraded") as socket:
        socket.send({"type": "response.create", "input": "hi"})
        events = socket.events_until_terminal()
        expect_sound(events)
        assert (deltas(events), final(events)["model"]) == ("upgraded", "upgraded")
        assert deltas(ask(socket, "of the frame")) == "of the frame"


@pytest.mark.checklist(3)
def test_without_any_model_the_create_is_refused(socket: WebSocket) -> None:
    socket.send({"type": "response.create", "input": "hi"})
    expect_error(socket.next_event(), "missing_required_parameter", "model")


# ---------------------------------------------------------------- what is no create


@pytest.mark.checklist(10)
@pytest.mark.parametrize("payload", [b"", b"\x00", b'{"type":"response.create","model":"m","input":"hi"}'], ids=repr)
def test_binary_messages(socket: WebSocket, payload: bytes) -> None:
    socket.send_frame(BINARY, payload)
    expect_error(socket.next_event(), "unsupported_message_type")


@pytest.mark.checklist(11)
@pytest.mark.parametrize("text", [b"", b"{bad", b"nonsense", b'{"type":"response.create"', b'{"a":NaN}'], ids=repr)
def test_what_is_no_json(socket: WebSocket, text: bytes) -> None:
    socket.send_text(text)
    expect_error(socket.next_event(), "invalid_json")


@pytest.mark.checklist(11)
@pytest.mark.parametrize("value", [{}, [], None, 7, "response.create", {"type": None}, {"type": 7}], ids=json.dumps)
def test_json_that_is_no_event(socket: WebSocket, value: Any) -> None:
    socket.send(value)
    expect_error(socket.next_event(), "unsupported_event", "type" if isinstance(value, dict) else None)


@pytest.mark.checklist(12)
def test_an_unknown_event_is_named_and_its_id_echoed(socket: WebSocket) -> None:
    socket.send({"type": "response.foo", "event_id": "e1"})
    event = socket.next_event()
    expect_error(event, "unsupported_event", "type", event_id="e1")
    assert "response.foo" in event["error"]["message"]
    assert "response.create" in event["error"]["message"]
    socket.send({"type": "response.foo", "stream_id": "a"})
    expect_error(socket.next_event(), "unsupported_event", "type", stream_id="a")
    socket.send({"type": "x" * 100_000})
    expect_error(socket.next_event(), "unsupported_event", "type")


@pytest.mark.agents(86)
def test_an_inject_needs_the_beta_header(socket: WebSocket) -> None:
    socket.send({"type": "response.inject", "response_id": NOBODY, "input": []})
    expect_error(socket.next_event(), "unsupported_event", "type")


@pytest.mark.agents(67, 102)
def test_controls_of_nobodys_response(gateway: Gateway) -> None:
    with WebSocket(gateway.port, headers=BETA) as socket:
        socket.send({"type": "response.inject", "response_id": NOBODY, "input": []})
        socket.send({"type": "response.steer", "previous_response_id": NOBODY, "input": "x"})
        for number, kind in enumerate(("response.inject.failed", "response.steer.failed")):
            event = socket.next_event()
            assert (event["type"], event["sequence_number"]) == (kind, number)
            assert event["error"]["code"] == "response_not_found"


@pytest.mark.agents(77)
def test_a_malformed_inject_ends_the_connection(gateway: Gateway) -> None:
    with WebSocket(gateway.port, headers=BETA) as socket:
        socket.send({"type": "response.inject", "response_id": NOBODY})
        expect_error(socket.next_event(), "invalid_event", "input")
        assert socket.await_close().close_code == 1008


def test_an_acknowledgement_needs_no_answer(socket: WebSocket) -> None:
    socket.send({"type": "response.processed", "response_id": NOBODY})
    socket.expect_silence(0.1)


@pytest.mark.parametrize("depth", [101, 50_000])
def test_deep_nesting(socket: WebSocket, depth: int) -> None:
    socket.send_text(b'{"type":"response.create","model":"m","input":' + b"[" * depth + b"]" * depth + b"}")
    event = socket.next_event()
    assert event["error"]["code"] == "invalid_json"
    assert event["status"] == 400


# ---------------------------------------------------------------- lanes that are none


@pytest.mark.parametrize("lane", ["", "a b", "ä", "a/b", "x" * 257, 7, True, [], {}, "a\n"], ids=ascii)
def test_an_invalid_lane(socket: WebSocket, model: str, lane: Any) -> None:
    socket.create(model, stream_id=lane, event_id="e2")
    event = socket.next_event()
    expect_error(event, "invalid_stream_id", "stream_id", event_id="e2")
    assert event["error"]["message"] == INVALID_LANE


@pytest.mark.parametrize("lane", [LONGEST_LANE, "a", ".", "-_-"])
def test_a_valid_lane(socket: WebSocket, model: str, lane: str) -> None:
    told(socket, model, stream_id=lane)


def test_null_is_the_default_lane(socket: WebSocket, model: str) -> None:
    socket.create(model, stream_id=None)
    expect_sound(socket.events_until_terminal())


# ---------------------------------------------------------------- shapes of a create


@pytest.mark.checklist(13)
@pytest.mark.parametrize("lane", [None, "a"])
def test_flat_and_nested_are_the_same(socket: WebSocket, model: str, lane: str | None) -> None:
    body = {"model": model, "input": "hi", "metadata": {"a": "b"}, "temperature": 0.5, "store": False}
    around = {"type": "response.create", "event_id": "e3", **({} if lane is None else {"stream_id": lane})}
    turns = []
    for message in ({**around, **body}, {**around, "response": body}):
        socket.send(message)
        turns.append(socket.events_until_terminal(lane))
        expect_sound(turns[-1], lane)
    assert anonymous(turns[0]) == anonymous(turns[1])
    assert final(turns[0])["metadata"] == {"a": "b"}


@pytest.mark.checklist(14)
@pytest.mark.parametrize("fields", [{"stream": False}, {"stream": True}, {"stream_options": {"include_usage": True}}])
def test_streaming_is_not_asked_for(socket: WebSocket, upstream: Upstream, model: str, fields: dict[str, Any]) -> None:
    events = ask(socket, model, **fields)
    expect_sound(events)
    assert deltas(events) == "you said hi"
    assert upstream.calls(model)[-1].body["stream"] is True


@pytest.mark.checklist(14, 503)
@pytest.mark.parametrize("lane", [None, "a"])
def test_nothing_runs_in_the_background(socket: WebSocket, upstream: Upstream, model: str, lane: str | None) -> None:
    calls = len(upstream.calls(model))
    fields = {} if lane is None else {"stream_id": lane}
    (event,) = ask(socket, model, background=True, event_id="e4", **fields)
    expect_error(event, "unsupported_parameter", "background", stream_id=lane, event_id="e4")
    assert len(upstream.calls(model)) == calls


def test_unknown_fields_are_no_fault(socket: WebSocket, model: str) -> None:
    told(socket, model, client_metadata={"originator": "test"}, event_id="e5", something_new=[1])


def test_a_message_in_pieces(socket: WebSocket, model: str) -> None:
    text = json.dumps({"type": "response.create", "model": model, "input": "in pieces ü"}, ensure_ascii=False).encode()
    socket.send_text(*(text[at : at + 7] for at in range(0, len(text), 7)))
    assert deltas(socket.events_until_terminal()) == "you said in pieces ü"


# ---------------------------------------------------------------- warm-ups


@pytest.mark.checklist(27)
@pytest.mark.parametrize("store", [True, False])
@pytest.mark.parametrize(
    "fields", [{"generate": False}, {"prompt_cache_options": {"prewarm": True}}], ids=["generate", "prewarm"]
)
def test_a_warm_up_asks_no_model_and_can_be_continued(
    gateway: Gateway, socket: WebSocket, upstream: Upstream, model: str, store: bool, fields: dict[str, Any]
) -> None:
    calls = len(upstream.calls(model))
    events = ask(socket, model, "context", store=store, stream_id="w", **fields)
    assert [(event["type"], event["sequence_number"]) for event in events] == [
        ("response.created", 0),
        ("response.completed", 1),
    ]
    expect_tags(events, "w")
    response = final(events)
    assert (response["status"], response["output"], response["usage"]["total_tokens"]) == ("completed", [], 0)
    assert response["store"] is store
    assert len(upstream.calls(model)) == calls
    with client(gateway.port) as caller:
        assert caller.get(f"/v1/responses/{response['id']}").status == (200 if store else 404)
    told(socket, model, "question", response["id"], stream_id="w", store=store)
    assert texts_sent(upstream, model) == ["context", "question"]


@pytest.mark.checklist(27)
def test_to_generate_is_the_rule(socket: WebSocket, model: str) -> None:
    assert deltas(ask(socket, model, generate=True)) == "you said hi"
    options = {"prewarm": False}
    assert deltas(ask(socket, model, generate=False, prompt_cache_options=options)) == "you said hi"
    (event,) = ask(socket, model, generate="no")
    expect_error(event, "invalid_type", "generate")


@pytest.mark.checklist(27, 58)
def test_a_warm_up_is_checked_like_any_create(socket: WebSocket, model: str) -> None:
    (event,) = ask(socket, model, generate=False, temperature=9)
    assert event["error"]["param"] == "temperature"
    (event,) = ask(socket, model, "go on", NOBODY, generate=False)
    expect_error(event, "previous_response_not_found", "previous_response_id")


# ---------------------------------------------------------------- one engine behind both


@pytest.fixture
def caller(gateway: Gateway) -> Iterator[Client]:
    with client(gateway.port) as running:
        yield running


@pytest.mark.checklist(15, 55, 58)
@pytest.mark.parametrize("wrong", WRONG_BODIES, ids=lambda wrong: ascii(wrong)[:60])
def test_both_transports_refuse_the_same(
    caller: Client, socket: WebSocket, upstream: Upstream, model: str, wrong: dict[str, Any]
) -> None:
    calls = len(upstream.calls(model))
    body = {"model": model, "input": "hi", **wrong}
    answer = caller.create({**body, "stream": True})
    socket.send({"type": "response.create", **body})
    (event,) = socket.events_until_terminal()
    assert answer.status == event["status"] == 400
    # The advice may differ, what is wrong may not.
    assert all(event["error"][name] == answer.error[name] for name in ("type", "code", "param"))
    assert len(upstream.calls(model)) == calls


@pytest.mark.checklist(57)
def test_an_unknown_parent_is_named(socket: WebSocket, model: str) -> None:
    (event,) = ask(socket, model, "go on", NOBODY, stream_id="a")
    expect_error(event, "previous_response_not_found", "previous_response_id", stream_id="a")
    assert event["error"]["message"] == f"Previous response with id '{NOBODY}' not found."


@pytest.mark.checklist(59)
@pytest.mark.parametrize("store", [True, False])
def test_both_transports_tell_the_same(gateway: Gateway, socket: WebSocket, upstream: Upstream, store: bool) -> None:
    model = upstream.script("both", EngineAnswer([*says("some words").items, call("f", '{"a":1}', "call_f")]))
    body = {"model": model, "input": "hi", "tools": [TOOL], "store": store, "metadata": {"a": "b"}}
    streamed = create(gateway.port, {**body, "stream": True})
    socket.send({"type": "response.create", **body})
    events = socket.events_until_terminal()
    assert judge(events) == []
    assert anonymous(events) == anonymous(streamed.events)


@pytest.mark.checklist(31)
def test_frames_hold_events_and_nothing_else(socket: WebSocket, model: str) -> None:
    for number in range(3):
        told(socket, model, f"q{number}")
    assert {frame.opcode for frame in socket.frames} - {PONG} == {TEXT}
    assert all(frame.event for frame in socket.frames)


@pytest.mark.checklist(39, 51)
def test_a_call_and_its_output(socket: WebSocket, upstream: Upstream) -> None:
    called = EngineAnswer([call("f", '{"a":1}', "call_f")])
    model = upstream.script("ws tool", in_turn(called, says("It is mild.")))
    events = ask(socket, model, "weather?", tools=[TOOL], store=False)
    expect_sound(events)
    (item,) = final(events)["output"]
    assert (item["type"], item["name"], item["arguments"]) == ("function_call", "f", '{"a":1}')
    output = {"type": "function_call_output", "call_id": item["call_id"], "output": "18C"}
    (event,) = ask(socket, model, [output], tools=[TOOL])
    expect_error(event, "invalid_tool_output", "input")
    told(socket, model, [output], id_in(events), tools=[TOOL], store=False)
    given = upstream.calls(model)[-1].body["input"]
    assert [entry.get("type", "message") for entry in given] == ["message", "function_call", "function_call_output"]
    assert given[1]["call_id"] == given[2]["call_id"] == item["call_id"]


def id_in(events: list[dict[str, Any]]) -> str:
    return str(final(events)["id"])
