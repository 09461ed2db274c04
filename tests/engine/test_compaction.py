"""Windows that are compacted on the way: before a round, between rounds, because a request asks for it."""

import asyncio
import json

import pytest
from conformance.verdict import judge_response
from engine.connections import Connection, CountingStore
from engine.doubles import Bench, OpenSealer, Reply, refusal, settle, streamed, text_of, types, whole
from engine.test_run import ended
from harness.engine import Answer, call, message, says
from harness.tools import MCP, ScriptedTools, returned, tool
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.protocol.compaction import build_note_message, estimate_tokens
from gateway.protocol.compaction_prompt import REQUEST
from gateway.protocol.errors import (
    CompactionFailed,
    GatewayError,
    InvalidRequest,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.telemetry.tracing import Tracing

LONG_TEXT = "word " * 400
F = {"type": "function", "name": "f", "parameters": {}}
TRIGGER = {"type": "compaction_trigger"}
both_ways = pytest.mark.parametrize("way", ["json", "stream"])


def user(text):
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def said(text):
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def at(threshold):
    return [{"type": "compaction", "compact_threshold": threshold}]


def bench_of(**options):
    return Bench(sealer=OpenSealer(), **options)


async def play(way, bench, *replies, **fields):
    """The response, made in one form or the other; summaries are asked for as JSON in both."""
    replies = [
        reply if isinstance(reply, Reply) else whole(reply) if way == "json" else streamed(reply) for reply in replies
    ]
    if way == "stream":
        return ended(await bench.stream(*replies, **fields))
    response = await bench.answer(*replies, **fields)
    assert judge_response(response) == []
    return response


def kinds(response):
    return [item["type"] for item in response["output"]]


def shown(body):
    """The items of a call in short: roles and types with texts."""
    return [item["content"][0]["text"] if item["type"] == "message" else item["type"] for item in body["input"]]


def noted(text):
    return build_note_message(text)["content"][0]["text"]


HISTORY = [user("q1"), said(LONG_TEXT), user("q2")]

# ---------------------------------------------------------------- before the first round


@pytest.mark.checklist(704)
@both_ways
async def test_a_long_window_is_replaced_by_a_note_before_the_model_is_asked(way):
    bench = bench_of()
    summary = whole(says("note one"))
    response = await play(
        way, bench, summary, says("answer"), input=HISTORY, context_management=at(100), instructions="i", tools=[F]
    )
    assert kinds(response) == ["compaction", "message"]
    assert response["usage"]["total_tokens"] == 24
    asked, inferred = bench.upstream.bodies
    assert shown(asked) == ["q1", LONG_TEXT, "q2", REQUEST]
    assert (asked["stream"], "tools" in asked, asked["instructions"]) == (False, False, "i")
    assert shown(inferred) == ["q1", "q2", noted("note one")]
    assert (inferred["instructions"], inferred["tools"][0]["name"]) == ("i", "f")
    assert bench.sample("compactions_total", outcome="compacted") == 1


async def test_the_events_of_a_compaction():
    bench = bench_of()
    told = await bench.stream(whole(says("n")), streamed(says("a")), input=HISTORY, context_management=at(100))
    assert types(told)[:5] == [
        "created",
        "in_progress",
        "output_item.added",
        "compaction.compacting",
        "output_item.done",
    ]
    added, compacting, done = told[2:5]
    assert added["item"] == {**done["item"], "encrypted_content": ""}
    assert (compacting["item_id"], compacting["output_index"]) == (done["item"]["id"], 0)
    assert done["item"] == told[-1]["response"]["output"][0]


def size_of(items):
    return estimate_tokens(items) + estimate_tokens([None, []])


@pytest.mark.checklist(701)
@pytest.mark.parametrize(("above", "compacts"), [(-1, True), (0, False), (1, False)])
async def test_the_estimate_has_to_be_above_the_threshold(above, compacts):
    bench = bench_of()
    threshold = size_of(HISTORY) + above
    replies = [whole(says("n"))] * compacts + [whole(says("a"))]
    response = await bench.answer(*replies, input=HISTORY, context_management=at(threshold))
    assert kinds(response) == ["compaction"] * compacts + ["message"]


@pytest.mark.parametrize("entries", [[], None, at(10**9), [{"type": "compaction"}]])
async def test_a_short_window_stays_as_it_is(entries):
    bench = bench_of()
    response = await bench.answer(whole(says("a")), input=HISTORY, context_management=entries)
    assert kinds(response) == ["message"]


async def test_an_entry_without_a_threshold_takes_the_configured_one():
    bench = bench_of(compaction={"default_threshold": 50})
    response = await bench.answer(
        whole(says("n")), whole(says("a")), input=HISTORY, context_management=[{"type": "compaction"}]
    )
    assert kinds(response) == ["compaction", "message"]


async def test_without_keys_it_is_refused_by_name():
    for fields in ({"context_management": at(5)}, {"input": [user("q"), TRIGGER]}):
        with pytest.raises(InvalidRequest, match="seal_keys") as refused:
            await Bench().plan(**fields)
        assert refused.value.code == "unsupported_parameter"


async def test_a_warm_up_compacts_nothing():
    connection = Connection(bench_of(store=CountingStore()))
    told = await connection.create(input=HISTORY, context_management=at(5), generate=False)
    assert types(told) == ["created", "completed"]
    assert connection.bench.upstream.calls == []


# ---------------------------------------------------------------- between rounds


def looked(*items):
    return Answer(list(items) or [call("mcp__s__look", "{}", "call_1")])


def toolbox(output=LONG_TEXT):
    async def look(_):
        return returned(output)

    return ScriptedTools({"look": look}, known=[tool("look")])


@pytest.mark.agents(133)
@pytest.mark.checklist(709)
@both_ways
async def test_a_window_that_tools_made_long_is_compacted_between_rounds(way):
    bench = bench_of(tools=toolbox())
    response = await play(
        way, bench, looked(), whole(says("looked: words")), says("done"),
        input="q", tools=[MCP], context_management=at(200),
    )  # fmt: skip
    assert kinds(response) == ["mcp_call", "compaction", "message"]
    first, asked, second = bench.upstream.bodies
    assert shown(first) == ["q"]
    assert shown(asked) == ["q", "function_call", "function_call_output", REQUEST]
    assert shown(second) == ["q", noted("looked: words")]
    assert second["tools"] == first["tools"]
    assert response["usage"]["total_tokens"] == 36


async def test_what_the_server_counted_counts_if_it_is_more():
    bench = bench_of(tools=toolbox("short"))
    usage = {"input_tokens": 5000, "output_tokens": 1, "total_tokens": 5001}
    response = await bench.answer(
        whole(Answer([call("mcp__s__look", "{}", "1")], usage=usage)), whole(says("n")), whole(says("done")),
        input=[user("q"), said("a b c d"), user("r")], tools=[MCP], context_management=at(1000),
    )  # fmt: skip
    assert kinds(response) == ["mcp_call", "compaction", "message"]


@both_ways
async def test_a_window_is_compacted_as_often_as_it_grows(way):
    bench = bench_of(tools=toolbox())
    response = await play(
        way, bench, looked(), whole(says("one")), looked(), whole(says("two")), says("done"),
        input="q", tools=[MCP], context_management=at(200),
    )  # fmt: skip
    assert kinds(response) == ["mcp_call", "compaction", "mcp_call", "compaction", "message"]
    bodies = bench.upstream.bodies
    assert shown(bodies[3]) == ["q", noted("one"), "function_call", "function_call_output", REQUEST]
    assert shown(bodies[4]) == ["q", noted("two")]


async def test_a_window_of_nothing_but_a_note_is_left_alone():
    bench = bench_of()
    answers = [whole(says("n")), whole(says("a"))]
    response = await bench.answer(*answers, input=HISTORY, context_management=at(1))
    replayed = [*HISTORY, response["output"][0]]
    again = await bench.answer(whole(says("b")), input=replayed, context_management=at(1))
    assert kinds(again) == ["message"]


# ---------------------------------------------------------------- summaries that come to nothing

BAD = [
    (Reply(error=refusal(500, "down")), "failed"),
    (whole(Answer([message("")])), "empty"),
    (whole(Answer([call("f", "{}", "1")])), "empty"),
    (whole(says(LONG_TEXT + LONG_TEXT)), "too_long"),
    (Reply([b"{"], event_stream=False), "failed"),
    (Reply(error=UpstreamTimeout("It was silent.")), "timeout"),
]


@pytest.mark.checklist(705)
@both_ways
@pytest.mark.parametrize(("bad", "outcome"), BAD)
async def test_a_bad_summary_leaves_the_window_as_it_was(way, bad, outcome):
    bench = bench_of()
    again = Reply(list(bad._waiting), event_stream=False, error=bad.error)
    response = await play(way, bench, again, says("answer"), input=HISTORY, context_management=at(100))
    assert kinds(response) == ["message"]
    assert shown(bench.upstream.bodies[1]) == ["q1", LONG_TEXT, "q2"]
    assert bench.sample("compactions_total", outcome=outcome) == 1


@pytest.mark.checklist(705)
async def test_a_summary_that_takes_too_long_is_given_up():
    bench = bench_of(compaction={"timeout_seconds": 0.01})
    held = Reply(accept=asyncio.Event())
    response = await bench.answer(held, whole(says("answer")), input=HISTORY, context_management=at(100))
    assert kinds(response) == ["message"]
    assert bench.sample("compactions_total", outcome="timeout") == 1


@pytest.mark.checklist(705)
async def test_the_second_failure_in_a_row_ends_the_response():
    bench = bench_of(tools=toolbox())
    told = await bench.stream(
        Reply(error=refusal()), streamed(looked()), Reply(error=refusal()),
        input=HISTORY, tools=[MCP], context_management=at(100),
    )  # fmt: skip
    failed = told[-1]["response"]
    assert (failed["status"], failed["error"]["code"]) == ("failed", "compaction_failed")
    assert [item["type"] for item in failed["output"]] == ["mcp_call"]
    assert await bench.stored(failed["id"]) is None


async def test_a_success_in_between_starts_the_count_anew():
    bench = bench_of(tools=toolbox())
    response = await bench.answer(
        Reply(error=refusal()), whole(looked()), whole(says("n")), whole(looked()),
        Reply(error=refusal()), whole(says("done")), input=HISTORY, tools=[MCP], context_management=at(100),
    )  # fmt: skip
    assert kinds(response) == ["mcp_call", "compaction", "mcp_call", "message"]


async def test_a_window_too_long_for_the_server_ends_as_the_server_says():
    bench = bench_of()
    with pytest.raises(UpstreamRefused):
        await bench.answer(
            Reply(error=refusal(400)), Reply(error=refusal(400)), input=HISTORY, context_management=at(100)
        )


@pytest.mark.checklist(707)
@pytest.mark.parametrize("bound", ["max_retained_bytes", "max_stream_event_bytes"])
async def test_a_note_without_room_fails_its_compaction_only(bound):
    bench = bench_of(responses={bound: 2200})
    response = await bench.answer(
        whole(says("n" * 2300)), whole(says("answer")), input=[user("q"), said("word " * 2000), user("r")],
        context_management=at(100),
    )  # fmt: skip
    assert kinds(response) == ["message"]
    assert bench.sample("compactions_total", outcome="too_large") == 1
    assert response["usage"]["total_tokens"] == 24


@pytest.mark.checklist(707)
async def test_tokens_of_a_failed_summary_count():
    bench = bench_of()
    response = await bench.answer(whole(says("")), whole(says("a")), input=HISTORY, context_management=at(100))
    assert response["usage"]["total_tokens"] == 24


async def test_who_leaves_during_a_summary_ends_it():
    bench = bench_of()
    held = Reply([asyncio.Event()], event_stream=False)
    _, task = await bench.start(held, input=HISTORY, context_management=at(100))
    await settle()
    task.cancel()
    await asyncio.wait([task])
    assert held.closed == 1
    assert bench.engine._seats["default"].running.now == 0


async def test_what_is_cut_off_during_a_summary_says_so():
    bench = bench_of()
    listener, _ = await bench.start(Reply(accept=asyncio.Event()), input=HISTORY, context_management=at(100))
    await settle()
    bench.engine.cut_off()
    with pytest.raises(GatewayError, match="shutting down"):
        await listener.take_all()


# ---------------------------------------------------------------- chains


@both_ways
@pytest.mark.parametrize("store", [True, False])
async def test_a_replayed_window_goes_on_from_its_note(way, store):
    bench = bench_of()
    first = await play(
        way, bench, whole(says("n1")), says("a2"), input=HISTORY, store=store, context_management=at(100)
    )
    await play(way, bench, says("a3"), input=[*HISTORY, *first["output"], user("q3")], store=store)
    assert shown(bench.upstream.bodies[2]) == ["q1", "q2", noted("n1"), "a2", "q3"]
    await play(way, bench, says("a3"), input=[*first["output"], user("q3")], store=store)
    assert shown(bench.upstream.bodies[3]) == [noted("n1"), "a2", "q3"]


@pytest.mark.checklist(703)
@both_ways
async def test_a_stored_window_goes_on_from_its_newest_note_and_forks_from_older_ones(way):
    bench = bench_of()
    one = await play(way, bench, whole(says("n1")), says("a2"), input=HISTORY, context_management=at(100))
    two = await play(
        way, bench, whole(says("n2")), says("a3"),
        input=[said(LONG_TEXT), user("q3")], previous_response_id=one["id"], context_management=at(100),
    )  # fmt: skip
    assert shown(bench.upstream.bodies[2]) == ["q1", "q2", noted("n1"), "a2", LONG_TEXT, "q3", REQUEST]
    assert shown(bench.upstream.bodies[3]) == ["q1", "q2", "q3", noted("n2")]
    await play(way, bench, says("a4"), input="q4", previous_response_id=two["id"])
    assert shown(bench.upstream.bodies[4]) == ["q1", "q2", "q3", noted("n2"), "a3", "q4"]
    await play(way, bench, says("a4"), input="q5", previous_response_id=one["id"])
    assert shown(bench.upstream.bodies[5]) == ["q1", "q2", noted("n1"), "a2", "q5"]


async def test_a_connection_goes_on_from_a_note_without_the_database():
    connection = Connection(bench_of(store=CountingStore()))
    told = await connection.create(
        whole(says("n1")), streamed(says("a2")), input=HISTORY, store=False, context_management=at(100)
    )
    await connection.tell("q3", told[-1]["response"]["id"])
    assert connection.sent == ["q1", "q2", noted("n1"), "a2", "q3"]
    assert connection.bench.store.reads == 0


async def test_what_is_stored_is_what_was_told():
    bench = bench_of()
    told = await bench.stream(whole(says("n1")), streamed(says("a2")), input=HISTORY, context_management=at(100))
    response = told[-1]["response"]
    assert json.loads(await bench.engine.retrieve("local", response["id"])) == response
    done = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    assert done == response["output"]


@pytest.mark.checklist(706)
@pytest.mark.parametrize(("entries", "compacts"), [(at(100), True), (at(10**6), False), (None, False)])
async def test_each_request_brings_its_own_threshold(entries, compacts):
    bench = bench_of()
    first = await bench.answer(whole(says(LONG_TEXT)), input="q1", context_management=at(10**6))
    replies = [whole(says("n"))] * compacts + [whole(says("a"))]
    second = await bench.answer(
        *replies, input="q2", model="other", previous_response_id=first["id"], context_management=entries
    )
    assert kinds(second) == ["compaction"] * compacts + ["message"]
    assert {body["model"] for body in bench.upstream.bodies[1:]} == {"other"}


async def test_notes_bring_along_as_much_of_the_user_as_is_configured():
    bench = bench_of(compaction={"keep_user_bytes": 0})
    await bench.answer(whole(says("n")), whole(says("a")), input=HISTORY, context_management=at(100))
    assert shown(bench.upstream.bodies[1]) == ["q2", noted("n")]


# ---------------------------------------------------------------- because the request asks for it


@pytest.mark.checklist(711)
@both_ways
async def test_a_trigger_compacts_and_asks_the_model_nothing_else(way):
    bench = bench_of()
    response = await play(way, bench, whole(says("n")), input=[*HISTORY, TRIGGER], tools=[F])
    assert (response["status"], kinds(response)) == ("completed", ["compaction"])
    assert response["usage"]["total_tokens"] == 12
    assert len(bench.upstream.calls) == 1
    await play(way, bench, says("a"), input="q3", previous_response_id=response["id"])
    assert shown(bench.upstream.bodies[1]) == ["q1", "q2", noted("n"), "q3"]


@pytest.mark.checklist(702)
@both_ways
async def test_calls_that_wait_stay_behind_a_note(way):
    bench = bench_of()
    first = await play(way, bench, Answer([call("f", "{}", "c1")]), input=HISTORY, tools=[F])
    noted_ = await play(way, bench, whole(says("n")), input=[TRIGGER], previous_response_id=first["id"])
    assert kinds(noted_) == ["compaction"]
    output = {"type": "function_call_output", "call_id": "c1", "output": "done"}
    await play(way, bench, says("a"), input=[output], previous_response_id=noted_["id"], tools=[F])
    asked, inferred = bench.upstream.bodies[1:]
    assert shown(asked) == ["q1", LONG_TEXT, "q2", REQUEST]
    assert shown(inferred) == ["q1", "q2", noted("n"), "function_call", "function_call_output"]
    with pytest.raises(InvalidRequest, match="No tool output found"):
        await bench.plan(input="q", previous_response_id=noted_["id"])


async def test_a_trigger_on_a_connection():
    connection = Connection(bench_of(store=CountingStore()))
    first = await connection.tell("q1", says_=LONG_TEXT)
    told = await connection.create(whole(says("n")), input=[TRIGGER], previous_response_id=first, store=False)
    assert types(told)[2:] == ["output_item.added", "compaction.compacting", "output_item.done", "completed"]
    await connection.tell("q2", told[-1]["response"]["id"])
    assert connection.sent == ["q1", noted("n"), "q2"]


@pytest.mark.agents(132)
@pytest.mark.checklist(708)
@pytest.mark.parametrize("given", [[TRIGGER, user("q")], [user("q"), TRIGGER, TRIGGER]])
async def test_a_trigger_must_be_the_last_item(given):
    bench = bench_of()
    with pytest.raises(InvalidRequest, match="last item") as refused:
        await bench.plan(input=given)
    assert (refused.value.code, bench.upstream.calls) == ("invalid_value", [])


@pytest.mark.parametrize(
    ("bad", "error"), [(whole(says("")), CompactionFailed), (Reply(error=refusal()), UpstreamRefused)]
)
async def test_a_trigger_that_comes_to_nothing_fails(bad, error):
    bench = bench_of()
    with pytest.raises(error):
        await bench.answer(bad, input=[*HISTORY, TRIGGER])
    assert bench.sample("responses_total", transport="json", status="failed") == 1


async def test_a_trigger_without_a_conversation_is_refused():
    with pytest.raises(InvalidRequest, match="nothing to compact"):
        await bench_of().plan(input=[TRIGGER])


# ---------------------------------------------------------------- what is seen of it


@pytest.mark.checklist(707)
async def test_each_summary_has_a_span():
    spans = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    bench = bench_of(tracing=Tracing(provider))
    with bench.tracing.start_request("POST", {}):
        await bench.answer(whole(says("n")), whole(says("a")), input=HISTORY, context_management=at(100))
    found = [
        span.attributes.get("gateway.call.purpose") for span in spans.get_finished_spans() if span.name == "chat m"
    ]
    assert found == ["compaction", None]


async def test_a_callers_own_prefix_cache_is_kept():
    bench = bench_of(upstream={"cache_salt_per_principal": True})
    response = await bench.answer(
        whole(says("n")),
        whole(says("a")),
        input=HISTORY,
        context_management=at(100),
        chat_template_kwargs={"enable_thinking": False},
    )
    assert text_of(response) == "a"
    one, two = bench.upstream.bodies
    assert one["cache_salt"] == two["cache_salt"]
    assert one["chat_template_kwargs"] == {"enable_thinking": False}
