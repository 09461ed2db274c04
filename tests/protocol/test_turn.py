"""A response from its creation to its terminal event."""

import pytest
from conformance.verdict import judge_response, judge_stream
from property.engine import Client, body_of, completed, listen, make_turn, play, spell, whole

from gateway.protocol import codec, sse
from gateway.protocol import upstream_events as up
from gateway.protocol.errors import GatewayError, InternalError, ResourceLimitExceeded, UpstreamError
from gateway.protocol.lifecycle import Phase
from gateway.protocol.limits import Limits
from gateway.protocol.minimal_error import minimal_error
from gateway.protocol.response import EncodedResponse
from gateway.protocol.turn import Turn

MESSAGE = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}],
}
REASONING = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]}
CALL = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}
USAGE = {"input_tokens": 3, "output_tokens": 4, "total_tokens": 7}


def types(client):
    return [event["type"].removeprefix("response.") for event in client.told]


def test_a_whole_stream_is_told_event_by_event():
    client = play([REASONING, MESSAGE, CALL])
    assert types(client) == [
        "created", "in_progress",
        "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done",
        "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]  # fmt: skip
    stream = b"".join(sse.frame(event["type"].encode(), codec.encode(event)) for event in client.told)
    assert judge_stream(stream + sse.DONE) == []


def test_the_final_response_is_complete_and_the_turn_settled():
    client = listen(*spell(MESSAGE, 0, whole), end={**completed(), "response": {"status": "completed", "usage": USAGE}})
    response = client.told[-1]["response"]
    assert judge_response(response) == []
    assert (response["status"], response["completed_at"], response["usage"]["total_tokens"]) == (
        "completed",
        1_790_000_002,
        7,
    )
    assert client.turn.phase is Phase.COMPLETED
    assert codec.decode(codec.encode(client.turn.response)) == response


def test_a_turn_without_options_of_its_own():
    client = Client(Turn(make_turn().response, Limits(), lambda prefix: f"{prefix}_{0:032x}"))
    client.ingest(client.turn.open_round(), completed())
    assert client.finish().output == []


def test_a_turn_begins_once():
    turn = Client().turn
    with pytest.raises(RuntimeError):
        turn.begin()


def test_an_incomplete_answer_says_why_and_its_last_item_is_incomplete():
    end = {
        "type": "response.completed",
        "response": {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
    }
    client = listen(*spell(REASONING, 0, whole), *spell(MESSAGE, 1, whole), end=end)
    response = client.told[-1]["response"]
    assert client.told[-1]["type"] == "response.incomplete"
    assert response["incomplete_details"] == {"reason": "content_filter"}
    assert response["completed_at"] is None
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]
    assert client.faults() == []


@pytest.mark.parametrize("details", [None, "why", {}, {"reason": ""}, {"reason": 5}])
def test_an_incomplete_answer_without_a_reason_ran_out_of_tokens(details):
    end = {"type": "response.incomplete", "response": {"incomplete_details": details}}
    assert listen(end=end).told[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


@pytest.mark.parametrize(
    ("name", "status", "expected"),
    [
        ("completed", "incomplete", "incomplete"),
        ("incomplete", "completed", "completed"),
        ("completed", None, "completed"),
        ("incomplete", None, "incomplete"),
        ("completed", "in_progress", "completed"),
        ("completed", 7, "completed"),
    ],
)
def test_the_status_decides_over_the_events_name(name, status, expected):
    end = {"type": f"response.{name}", "response": {"status": status}}
    assert listen(end=end).told[-1]["response"]["status"] == expected


def test_a_terminal_without_a_response_is_taken_by_its_name():
    assert listen(end={"type": "response.completed"}).told[-1]["response"]["status"] == "completed"


@pytest.mark.parametrize(
    ("end", "message", "code"),
    [
        ({"type": "response.failed", "response": {"error": {"code": "busy", "message": "Busy."}}}, "Busy.", "busy"),
        (
            {"type": "response.completed", "response": {"status": "failed", "error": {"message": "Broke."}}},
            "Broke.",
            "server_error",
        ),
        ({"type": "response.failed"}, "The upstream ended the response as failed.", "server_error"),
        ({"type": "response.cancelled"}, "The upstream ended the response as cancelled.", "server_error"),
        (
            {"type": "response.failed", "response": {"error": {"code": "", "message": ""}}},
            "The upstream ended the response as failed.",
            "server_error",
        ),
        (
            {"type": "response.failed", "response": {"error": {"code": "c" * 65, "message": "m" * 9999}}},
            "m" * 4096,
            "server_error",
        ),
        ({"type": "error", "code": "busy", "message": "Busy."}, "Busy.", "busy"),
        ({"error": {"message": "Busy.", "code": 500}}, "Busy.", "server_error"),
    ],
)
def test_the_engines_failure_is_raised_with_its_words(end, message, code):
    with pytest.raises(UpstreamError) as refused:
        listen(end=end)
    assert (refused.value.message, refused.value.code, refused.value.status) == (message, code, 502)


def test_after_the_end_of_a_round_nothing_is_heard():
    client = Client()
    round_ = client.turn.open_round()
    client.ingest(round_, completed())
    assert round_.ended
    for event in [*spell(MESSAGE, 0, whole), completed([MESSAGE]), {"type": "response.failed"}, {"type": "error"}]:
        client.ingest(round_, event)
    assert client.finish().output == []


def test_usage_is_the_sum_of_the_rounds():
    client = Client()
    for _ in range(2):
        client.ingest(client.turn.open_round(), {**completed(), "response": {"usage": USAGE}})
    client.ingest(client.turn.open_round(), completed())
    assert client.finish().told[-1]["response"]["usage"]["total_tokens"] == 14


def test_output_indexes_go_on_in_the_next_round():
    client = Client()
    for _ in range(2):
        round_ = client.turn.open_round()
        for event in [*spell(MESSAGE, 0, whole), completed([MESSAGE])]:
            client.ingest(round_, event)
    client.finish()
    assert client.faults() == []
    assert len(client.output) == 2


# ---------------------------------------------------------------- whole bodies


def test_a_body_is_told_like_a_stream():
    client = Client()
    round_ = client.turn.open_round()
    client.hear(client.turn.ingest_body(round_, {**body_of([REASONING, MESSAGE, CALL]), "usage": USAGE}))
    assert round_.ended
    assert client.turn.ingest_body(round_, body_of([MESSAGE])) == []
    client.finish()
    assert types(client) == types(play([REASONING, MESSAGE, CALL]))
    assert client.told[-1]["response"]["usage"]["total_tokens"] == 7


def test_a_body_may_be_incomplete():
    client = Client()
    client.hear(client.turn.ingest_body(client.turn.open_round(), body_of([MESSAGE], "incomplete")))
    assert client.finish().output[0]["status"] == "incomplete"


def test_what_is_no_item_of_a_body_is_left_out():
    body = {"output": [None, {**MESSAGE, "id": None}, 5, {}]}
    client = Client()
    client.hear(client.turn.ingest_body(client.turn.open_round(), body))
    assert [item["type"] for item in client.finish().output] == ["message"]


@pytest.mark.parametrize("body", [None, [], "text", {}, {"output": None}, {"output": {}}])
def test_a_body_that_is_no_response_is_the_upstreams_error(body):
    client = Client()
    with pytest.raises(UpstreamError, match="not a response") as refused:
        client.turn.ingest_body(client.turn.open_round(), body)
    assert refused.value.code == "upstream_invalid_body"


@pytest.mark.parametrize("status", ["queued", "in_progress"])
def test_a_body_that_is_not_finished_is_the_upstreams_error(status):
    client = Client()
    with pytest.raises(UpstreamError, match="not finished") as refused:
        client.turn.ingest_body(client.turn.open_round(), {"status": status, "output": []})
    assert refused.value.code == "upstream_invalid_body"


def test_a_failed_body_is_the_engines_failure():
    client = Client()
    body = {"status": "failed", "output": [], "error": {"code": "busy", "message": "Busy."}}
    with pytest.raises(UpstreamError, match="Busy"):
        client.turn.ingest_body(client.turn.open_round(), body)


# ---------------------------------------------------------------- failures


def test_a_failure_keeps_what_was_streamed():
    client = Client()
    round_ = client.turn.open_round()
    for event in [*spell(REASONING, 0, whole), *spell(MESSAGE, 1, whole)[:3]]:
        client.ingest(round_, event)
    client.fail(InternalError(), round_)
    response = client.told[-1]["response"]
    assert client.told[-1]["type"] == "response.failed"
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]
    assert response["error"] == {"code": "server_error", "message": InternalError().message}
    assert response["completed_at"] is None
    assert client.faults() == []
    assert client.turn.phase is Phase.FAILED


def test_a_failure_tells_that_the_held_item_is_done():
    client = Client()
    round_ = client.turn.open_round()
    for event in spell(MESSAGE, 0, whole):
        client.ingest(round_, event)
    assert types(client)[-1] == "content_part.done"
    client.fail(InternalError(), round_)
    assert types(client)[-2:] == ["output_item.done", "failed"]
    assert client.output[0]["status"] == "completed"


def test_a_failure_before_any_round_has_no_output():
    assert Client().fail(InternalError()).output == []


def test_a_failure_has_smaller_and_smaller_forms():
    client = Client()
    client.turn.response.instructions, client.turn.response.tools = "Be brief.", [{"type": "custom", "name": "n"}]
    round_ = client.turn.open_round()
    for event in spell(MESSAGE, 0, whole):
        client.ingest(round_, event)
    owed, forms = client.turn.fail(InternalError(), round_)
    full, bare, bones, least = (codec.decode(codec.encode(form)) for form in forms)
    assert {form["sequence_number"] for form in (full, bare, bones, least)} == {len(client.told) + len(owed)}
    assert [len(form["response"]["output"]) for form in (full, bare, bones)] == [1, 0, 0]
    assert [form["response"]["instructions"] for form in (full, bare, bones)] == ["Be brief.", "Be brief.", None]
    assert [len(form["response"]["tools"]) for form in (full, bare, bones)] == [1, 1, 0]
    assert (least["type"], least["code"], least["error"]["code"]) == ("error", "server_error", "server_error")


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (UpstreamError("It broke.", code="busy"), "busy", "It broke."),
        (UpstreamError('Say "a\\b".', code="busy"), "busy", "Say 'a/b'."),
        (UpstreamError("Ä", code="é"), "upstream_error", "The response failed."),
        (UpstreamError("a\nb", code="c" * 41), "upstream_error", "The response failed."),
        (UpstreamError("", code="c" * 40), "c" * 40, "The response failed."),
    ],
)
def test_the_minimal_error_keeps_what_is_short_and_plain(error, code, message):
    event = minimal_error(error, 7)
    assert (event.code, event.message, event.error.type) == (code, message, "upstream_error")


def test_usage_of_a_failed_round_is_reported():
    client = Client()
    round_ = client.turn.open_round()
    with pytest.raises(UpstreamError):
        client.ingest(round_, {"type": "response.failed", "response": {"usage": USAGE}})
    client.fail(InternalError(), round_)
    assert client.told[-1]["response"]["usage"]["total_tokens"] == 7


def test_a_breached_limit_is_named_in_the_response():
    client = Client()
    client.fail(ResourceLimitExceeded("max_retained_bytes", 9))
    assert client.told[-1]["response"]["error"] == {
        "code": "response_resource_limit_exceeded",
        "message": "The response exceeds [responses] max_retained_bytes (9 bytes).",
        "param": None,
        "resource": "max_retained_bytes",
        "limit": 9,
    }


def test_what_a_breached_limit_cut_off_is_still_told():
    """A snapshot may fit in part; that part is in the partial output, so the client hears of it."""
    client = Client(make_turn(460))
    round_ = client.turn.open_round()
    part = {"type": "output_text", "text": "Hi there", "annotations": [], "logprobs": []}
    longer = {**MESSAGE, "content": [part, {**part, "text": "x" * 500}]}
    for event in spell(MESSAGE, 0, whole)[:3]:
        client.ingest(round_, event)
    with pytest.raises(ResourceLimitExceeded) as refused:
        client.ingest(round_, spell(longer, 0, whole)[-1])
    client.fail(refused.value, round_)
    assert client.deltas["response.output_text.delta", 0, 0, None] == "Hi there"
    assert client.output[0]["content"][0]["text"] == "Hi there"
    assert client.faults() == []


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ({"status": "failed", "error": {"message": "boom", "code": "oom"}}, "boom", "oom"),
        ({"status": "failed", "error": {"message": "boom"}, "output": None}, "boom", "server_error"),
        ({"status": "cancelled"}, "The upstream ended the response as cancelled.", "server_error"),
        ({"error": {"message": "boom"}}, "boom", "server_error"),
        ({"error": "boom"}, "boom", "server_error"),
    ],
)
def test_a_failed_body_without_output_keeps_its_words(body, message, code):
    client = Client()
    with pytest.raises(UpstreamError) as failed:
        client.turn.ingest_body(client.turn.open_round(), body)
    assert (failed.value.message, failed.value.code) == (message, code)


def test_a_nameless_call_of_a_body_is_the_upstreams_failure_unless_it_was_cut_short():
    nameless = {"type": "function_call", "call_id": "c", "arguments": ""}
    client = Client()
    with pytest.raises(UpstreamError, match="without a name"):
        client.turn.ingest_body(client.turn.open_round(), body_of([MESSAGE, nameless]))
    client = Client()
    client.hear(client.turn.ingest_body(client.turn.open_round(), body_of([MESSAGE, nameless], "incomplete")))
    assert [item["type"] for item in client.finish().output] == ["message"]
    assert client.faults() == []


@pytest.mark.parametrize("streamed", [True, False])
def test_items_that_fit_before_a_breach_are_still_told(streamed):
    """Whether they come in a final snapshot or in a body: numbers stay without a gap."""
    client = Client(make_turn(play([MESSAGE, CALL]).turn.ledger.total + 100))
    round_ = client.turn.open_round()
    said = [MESSAGE, CALL, {**CALL, "arguments": "x" * 500}]

    def take():
        if streamed:
            client.ingest(round_, completed(said))
        else:
            client.turn.ingest_body(round_, body_of(said))

    with pytest.raises(ResourceLimitExceeded) as refused:
        take()
    client.fail(refused.value, round_)
    assert [item["status"] for item in client.output] == ["completed", "completed"]
    assert client.faults() == []


def test_a_rejected_proposal_gives_its_number_back():
    client = Client()
    client.ingest(client.turn.open_round(), completed())
    proposed = client.turn.announce(EncodedResponse(client.turn.propose(1)))
    client.turn.rewind(proposed.sequence_number)
    client.fail(GatewayError("The database is away."))
    assert [event["sequence_number"] for event in client.told] == [0, 1, 2]
    assert client.faults() == []


def test_a_malformed_hosted_event_is_the_upstreams_error():
    search = {"type": "mcp_call", "name": "n", "arguments": "", "server_label": "s", "status": "in_progress"}
    added = {"type": "response.output_item.added", "item": search, "output_index": 0}
    with pytest.raises(UpstreamError, match="malformed event") as refused:
        listen(added, {"type": "response.mcp_call_arguments.delta", "output_index": 0, "delta": 5})
    assert refused.value.code == "upstream_invalid_event"


def test_events_that_carry_nothing_give_nothing():
    client = listen(
        {"type": "response.created"},
        {"type": "response.queued"},
        {"type": "response.in_progress"},
        {"type": "keepalive"},
    )
    assert types(client) == ["created", "in_progress", "completed"]


def test_the_engines_id_of_the_response_is_not_ours():
    assert type(up.parse(b"", b'{"type":"response.created","response":{"id":"resp_theirs"}}')) is up.Created
    client = listen(
        {"type": "response.created", "response": {"id": "resp_theirs"}}, end={**completed(), "response": {"id": "x"}}
    )
    assert {event["response"]["id"] for event in client.told} == {client.turn.response.id}
