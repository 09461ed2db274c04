"""The facade: what a request refers to, what is forwarded, what is read back."""

import asyncio
import json
import logging

import pytest
from conformance.verdict import judge_response
from engine.doubles import LONG, Bench, Reply, settle, streamed, text_of, types, whole
from harness.engine import Answer, call, message, reasoning, says
from msgspec import structs

from gateway.config import EngineConfig, ResponsesConfig, ServerConfig, UpstreamConfig
from gateway.engine.input_items import Page
from gateway.protocol.errors import (
    GatewayError,
    InvalidRequest,
    NotFound,
    PreviousResponseNotFound,
    ResponseNotFound,
    StorageUnavailable,
    Unavailable,
    UpstreamUnavailable,
)

TOOLS = [{"type": "function", "name": "f", "parameters": {}}]


@pytest.fixture
def bench():
    return Bench()


def texts(items):
    """The text of each item that was sent upstream, whatever its shape."""
    return [
        item["content"] if isinstance(item["content"], str) else item["content"][0]["text"]
        for item in items
        if "content" in item
    ]


async def refused(work):
    with pytest.raises(InvalidRequest) as error:
        await work
    return error.value


# ---------------------------------------------------------------- continuing


async def test_a_continuation_sends_the_whole_history(bench):
    one = await bench.answer(whole(says("first")), input="a")
    two = await bench.answer(whole(says("second")), input="b", previous_response_id=one["id"])
    three = await bench.answer(whole(says("third")), input="c", previous_response_id=two["id"])
    assert three["previous_response_id"] == two["id"]
    assert texts(bench.upstream.bodies[2]["input"]) == ["a", "first", "b", "second", "c"]
    assert [item.role for item in (await bench.stored(three["id"])).items] == ["input", "output"]


async def test_a_response_can_be_continued_twice(bench):
    root = await bench.answer(whole(says("root")), input="a")
    for text in ("left", "right"):
        await bench.answer(whole(says(text)), input=text, previous_response_id=root["id"])
    assert [texts(body["input"]) for body in bench.upstream.bodies[1:]] == [
        ["a", "root", "left"],
        ["a", "root", "right"],
    ]


async def test_a_continuation_may_bring_no_input(bench):
    one = await bench.answer(whole(says("first")), input="a")
    await bench.answer(whole(says("more")), input=[], previous_response_id=one["id"])
    assert texts(bench.upstream.bodies[1]["input"]) == ["a", "first"]


@pytest.mark.parametrize("principal", ["local", "mallory"])
async def test_what_is_not_the_callers_cannot_be_continued(bench, principal):
    one = await bench.answer(whole(says("first")), principal="ann")
    error = await refused(bench.answer(principal=principal, previous_response_id=one["id"]))
    assert isinstance(error, PreviousResponseNotFound)
    assert (error.status, error.code, error.param) == (400, "previous_response_not_found", "previous_response_id")
    assert len(bench.upstream.calls) == 1


async def test_an_unstored_response_cannot_be_continued(bench):
    one = await bench.answer(whole(says("first")), store=False)
    assert isinstance(await refused(bench.answer(previous_response_id=one["id"])), PreviousResponseNotFound)


async def test_without_its_history_a_request_is_not_sent(bench):
    async def history(principal, response_id):
        raise StorageUnavailable("The database does not answer.")

    bench.store.history = history
    with pytest.raises(StorageUnavailable):
        await bench.answer(previous_response_id="resp_1")
    assert bench.upstream.calls == []


async def test_a_call_is_answered_in_the_next_request(bench):
    asked = await bench.answer(whole(Answer([call("f", "{}", "call_1")])), tools=TOOLS)
    output = {"type": "function_call_output", "call_id": "call_1", "output": "7"}
    await bench.answer(whole(says("seven")), input=[output], tools=TOOLS, previous_response_id=asked["id"])
    sent = bench.upstream.bodies[1]["input"]
    assert [item["type"] for item in sent] == ["message", "function_call", "function_call_output"]
    assert sent[1]["call_id"] == sent[2]["call_id"] == "call_1"


async def test_a_call_without_an_output_stops_the_continuation(bench):
    asked = await bench.answer(whole(Answer([call("f", "{}", "call_1")])), tools=TOOLS)
    error = await refused(bench.answer(previous_response_id=asked["id"]))
    assert (error.code, error.param) == ("missing_tool_output", "input")


async def test_a_call_that_was_cut_short_is_neither_answered_nor_repeated(bench):
    cut = Answer([reasoning("Hm."), call("f", '{"a', "call_1")], status="incomplete")
    asked = await bench.answer(whole(cut), tools=TOOLS)
    assert asked["output"][1]["status"] == "incomplete"
    await bench.answer(whole(says("next")), input="go on", previous_response_id=asked["id"])
    assert [item["type"] for item in bench.upstream.bodies[1]["input"]] == ["message", "reasoning", "message"]


async def test_a_call_the_caller_gives_as_incomplete_is_kept_but_not_sent(bench):
    cut = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{", "status": "incomplete"}
    answer = await bench.answer(whole(says("ok")), input=[cut, {"role": "user", "content": "go on"}])
    assert [item["type"] for item in bench.upstream.bodies[0]["input"]] == ["message"]
    stored = await bench.stored(answer["id"])
    assert [item.type for item in stored.items] == ["function_call", "message", "message"]


async def test_a_call_id_that_is_in_use_is_replaced(bench):
    asked = await bench.answer(whole(Answer([call("f", "{}", "call_1")])), tools=TOOLS)
    output = {"type": "function_call_output", "call_id": "call_1", "output": "7"}
    again = await bench.answer(
        whole(Answer([call("f", "{}", "call_1")])), input=[output], tools=TOOLS, previous_response_id=asked["id"]
    )
    assert again["output"][0]["call_id"] not in ("", "call_1")


async def test_a_custom_tool_goes_out_as_a_function_and_comes_back_as_itself(bench):
    spoken = Answer([call("shell", '{"input": "ls"}', "call_1")])
    asked = await bench.answer(whole(spoken), tools=[{"type": "custom", "name": "shell"}])
    assert bench.upstream.bodies[0]["tools"][0]["type"] == "function"
    assert (asked["output"][0]["type"], asked["output"][0]["input"]) == ("custom_tool_call", "ls")
    output = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "a.txt"}
    await bench.answer(whole(says("ok")), input=[output], previous_response_id=asked["id"])
    sent = bench.upstream.bodies[1]["input"]
    assert [item["type"] for item in sent] == ["message", "function_call", "function_call_output"]
    assert json.loads(sent[1]["arguments"]) == {"input": "ls"}


# ---------------------------------------------------------------- references


async def test_an_item_is_referred_to_by_its_id(bench):
    one = await bench.answer(whole(says("first")))
    reference = {"type": "item_reference", "id": one["output"][0]["id"]}
    two = await bench.answer(whole(says("second")), input=[reference, {"role": "user", "content": "again"}])
    assert texts(bench.upstream.bodies[1]["input"]) == ["first", "again"]
    stored = await bench.stored(two["id"])
    assert json.loads(stored.items[0].data) == one["output"][0]


@pytest.mark.parametrize("principal", ["ann", "mallory"])
async def test_an_item_that_is_not_the_callers_is_not_found(bench, principal):
    one = await bench.answer(whole(says("first")), principal="ann")
    wanted = one["output"][0]["id"] if principal == "mallory" else "msg_unknown"
    given = [{"role": "user", "content": "a"}, {"type": "item_reference", "id": wanted}]
    error = await refused(bench.answer(input=given, principal=principal))
    assert (error.code, error.param) == ("item_not_found", "input[1].id")
    assert wanted in error.message
    assert len(bench.upstream.calls) == 1


async def test_a_long_id_is_not_repeated_whole(bench):
    error = await refused(bench.answer(input=[{"type": "item_reference", "id": "x" * 500}]))
    assert "x" * 128 in error.message
    assert "x" * 129 not in error.message


# ---------------------------------------------------------------- parameters


async def test_an_unknown_parameter_is_forwarded_and_said_once(bench, caplog):
    caplog.set_level(logging.INFO, "gateway.engine")
    for _ in range(2):
        await bench.answer(whole(says("ok")), best_of=3)
    assert [body["best_of"] for body in bench.upstream.bodies] == [3, 3]
    assert [record.parameter for record in caplog.records] == ["best_of"]


async def test_only_so_many_names_are_remembered(bench, caplog):
    caplog.set_level(logging.INFO, "gateway.engine")
    for start in range(0, 400, 100):
        bench.engine.read(json.dumps({"model": "m", "input": "a", **{f"x{start + n}": 1 for n in range(100)}}).encode())
    assert len({record.parameter for record in caplog.records}) == len(caplog.records) == 256


async def test_a_long_name_is_not_logged_whole(bench, caplog):
    caplog.set_level(logging.INFO, "gateway.engine")
    bench.engine.read(json.dumps({"model": "m", "input": "a", "x" * 500: 1}).encode())
    assert caplog.records[0].parameter == "x" * 64


async def test_an_operator_can_refuse_unknown_parameters():
    error = await refused(Bench(responses={"strict_parameters": True}).plan(best_of=3))
    assert (error.code, error.param) == ("unknown_parameter", "best_of")


async def test_the_fields_of_the_operator_pass_only_where_they_are_allowed():
    assert (await refused(Bench().plan(priority=1))).param == "priority"
    bench = Bench(upstream={"allow_fields": ("priority",)})
    await bench.answer(whole(says("ok")), priority=1)
    assert bench.upstream.bodies[0]["priority"] == 1


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"model": "m", "input": ' + b"[" * 200 + b"]" * 200 + b"}"])
def test_what_is_no_request_is_refused(bench, body):
    with pytest.raises(InvalidRequest) as error:
        bench.engine.read(body)
    assert error.value.code == "invalid_json"


@pytest.mark.parametrize("model", [None, "", 5])
def test_a_request_without_a_model_is_told_so(model):
    bench = Bench(upstream={"models": ("x",)})
    with pytest.raises(InvalidRequest) as error:
        bench.engine.read(json.dumps({"model": model, "input": "a"}).encode())
    assert error.value.param == "model"


def test_a_model_nobody_serves_is_not_found():
    with pytest.raises(NotFound) as error:
        Bench(upstream={"models": ("x",)}).engine.read(b'{"model": "y", "input": "a"}')
    assert error.value.code == "model_not_found"


async def test_tools_that_cannot_be_run_are_counted_and_named(bench):
    hosted = [{"type": "web_search"}, {"type": "file_search"}, {"type": "web_search"}]
    plan = await bench.plan(tools=[*TOOLS, *hosted])
    assert plan.request.toolset.unsupported == ("web_search", "file_search")
    assert bench.sample("unsupported_tools_total") == 2


@pytest.mark.parametrize(
    ("mode", "asked", "summary", "content"),
    [
        ("off", "auto", 0, 1),
        ("both", None, 1, 1),
        ("instead", "auto", 1, 0),
        ("instead", None, 0, 1),
    ],
)
async def test_reasoning_is_shown_as_the_operator_and_the_caller_want_it(mode, asked, summary, content):
    bench = Bench(responses={"reasoning_summary": mode})
    wish = {"reasoning": {"summary": asked}} if asked else {}
    told = await bench.stream(streamed(Answer([reasoning("Hm."), message("Yes.")])), **wish)
    shown = told[-1]["response"]["output"][0]
    assert (len(shown["summary"]), len(shown.get("content") or [])) == (summary, content)
    assert ("reasoning_summary_text.delta" in types(told), "reasoning_text.delta" in types(told)) == (
        bool(summary),
        bool(content),
    )


# ---------------------------------------------------------------- reading


@pytest.mark.parametrize("text", ["Hi.", 'Z "\\ \u2028 é 😀', "half a pair: \ud83d"])
async def test_a_stored_response_reads_as_it_was_answered(bench, text):
    answer = await bench.answer(whole(says(text)), instructions=text)
    read = json.loads(await bench.engine.retrieve("local", answer["id"]))
    assert read == answer
    assert text_of(read) == read["instructions"] == text
    assert judge_response(read) == []


async def test_half_a_surrogate_pair_anywhere_is_kept_and_read_back(bench):
    half = "a\ud800"
    part = {"type": "output_text", "text": half, "annotations": [{"note": half}], "logprobs": [{"token": half}]}
    items = [
        {"type": half, half: half},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": half}], "encrypted_content": half},
        {"type": "function_call", "call_id": half, "name": half, "arguments": half},
        {"type": "message", "phase": half, "content": [part, {"type": half}]},
    ]
    body = {"status": "incomplete", "incomplete_details": {"reason": half}, "output": items}
    fields = {
        "metadata": {half: half},
        "reasoning": {"effort": half},
        "tools": [{"type": "function", "name": half, "description": half}, {"type": half}],
        half: half,
    }
    answer = await bench.answer(Reply([json.dumps(body).encode()], event_stream=False), **fields)
    assert json.loads(await bench.engine.retrieve("local", answer["id"])) == answer
    assert [item["type"] for item in answer["output"]] == [half, "reasoning", "function_call", "message"]
    assert bench.upstream.bodies[0][half] == half


@pytest.mark.parametrize("principal", ["local", "mallory"])
async def test_a_response_that_is_not_the_callers_is_not_found(bench, principal):
    answer = await bench.answer(whole(says("Hi.")), principal="ann")
    wanted = answer["id"] if principal == "mallory" else "resp_" + "x" * 500
    with pytest.raises(NotFound) as error:
        await bench.engine.retrieve(principal, wanted)
    assert (error.value.status, error.value.code) == (404, "response_not_found")
    assert len(error.value.message) < 200


async def test_a_deleted_response_is_gone_and_its_child_goes_on(bench):
    one = await bench.answer(whole(says("first")), input="a")
    two = await bench.answer(whole(says("second")), input="b", previous_response_id=one["id"])
    assert json.loads(await bench.engine.delete("local", one["id"])) == {
        "id": one["id"],
        "object": "response",
        "deleted": True,
    }
    for gone in (bench.engine.retrieve, bench.engine.delete):
        with pytest.raises(ResponseNotFound):
            await gone("local", one["id"])
    with pytest.raises(ResponseNotFound):
        await bench.engine.input_items("local", one["id"], Page())
    with pytest.raises(PreviousResponseNotFound):
        await bench.plan(previous_response_id=one["id"])
    await bench.answer(whole(says("third")), input="c", previous_response_id=two["id"])
    assert texts(bench.upstream.bodies[-1]["input"]) == ["a", "first", "b", "second", "c"]


async def test_the_input_of_a_response_is_its_own(bench):
    one = await bench.answer(whole(says("first")), input="a")
    sent = [{"role": "user", "content": "b"}, {"role": "assistant", "content": "c", "id": "msg_mine"}]
    two = await bench.answer(whole(says("second")), input=sent, previous_response_id=one["id"])
    listed = json.loads(await bench.engine.input_items("local", two["id"], Page(order="asc")))
    minted, mine = listed["data"]
    assert texts([minted, mine]) == ["b", "c"]
    assert minted["id"].startswith("msg_")
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == (minted["id"], "msg_mine", False)
    assert {item["status"] for item in listed["data"]} == {"completed"}


@pytest.mark.parametrize("principal", ["local", "mallory"])
async def test_nobody_elses_response_can_be_deleted_or_listed(bench, principal):
    answer = await bench.answer(whole(says("Hi.")), principal="ann")
    wanted = answer["id"] if principal == "mallory" else "resp_unknown"
    with pytest.raises(ResponseNotFound):
        await bench.engine.delete(principal, wanted)
    with pytest.raises(ResponseNotFound):
        await bench.engine.input_items(principal, wanted, Page())
    assert json.loads(await bench.engine.retrieve("ann", answer["id"])) == answer


async def test_models_are_listed_and_found_by_name():
    bench = Bench(upstream={"aliases": {"small": "qwen"}})
    bench.upstream.listed = [{"id": "qwen"}]
    listed = json.loads(await bench.engine.models())
    assert (listed["object"], [model["id"] for model in listed["data"]]) == ("list", ["qwen", "small"])
    assert json.loads(await bench.engine.model("small")) == listed["data"][1]
    with pytest.raises(NotFound) as error:
        await bench.engine.model("large")
    assert error.value.code == "model_not_found"


async def test_models_cannot_be_listed_without_an_upstream(bench):
    bench.upstream.listed = UpstreamUnavailable("No connection.")
    with pytest.raises(UpstreamUnavailable):
        await bench.engine.models()
    with pytest.raises(UpstreamUnavailable):
        await bench.engine.model("m")


# ---------------------------------------------------------------- ending


async def test_an_engine_that_drains_takes_nothing_new_and_waits_for_the_rest(bench):
    with bench.engine.admit("local"):
        assert bench.engine.active == 1
        bench.engine.begin_drain()
        with pytest.raises(Unavailable):
            bench.engine.admit("local").__enter__()
        drained = asyncio.create_task(bench.engine.drained(LONG))
        await settle()
        assert not drained.done()
    assert await drained
    assert bench.engine.active == 0


# ---------------------------------------------------------------- another configuration


async def test_a_response_keeps_the_settings_it_began_with(bench):
    began = await bench.plan()
    bench.engine.reconfigure(
        structs.replace(
            bench.config,
            responses=ResponsesConfig(max_retained_bytes=20, reasoning_summary="both"),
            engine=EngineConfig(run_deadline_seconds=0.0001),
        )
    )
    bench.upstream.replies.append(whole(says("hello")))
    assert json.loads(await bench.engine.answer(began))["status"] == "completed"
    with pytest.raises(GatewayError):
        await bench.answer(whole(says("hello")))


async def test_requests_are_read_by_the_newest_configuration(bench):
    bench.engine.reconfigure(
        structs.replace(
            bench.config,
            responses=ResponsesConfig(strict_parameters=True, max_json_depth=1),
            upstream=UpstreamConfig(models=("m",), allow_fields=("priority",)),
        )
    )
    with pytest.raises(InvalidRequest, match="nested"):
        await bench.plan(input=[{"role": "user", "content": "hi"}])
    with pytest.raises(InvalidRequest):
        await bench.plan(unheard_of=1)
    with pytest.raises(NotFound):
        await bench.plan(model="other")
    assert (await bench.plan(priority=1)).request is not None


async def test_limits_on_numbers_count_what_began_before():
    bench = Bench(server={"max_concurrent_requests": 2}, upstream={"max_concurrent": 2})
    smaller = structs.replace(
        bench.config,
        server=ServerConfig(max_concurrent_requests=1),
        upstream=UpstreamConfig(max_concurrent=1, max_concurrent_wait_seconds=0),
    )
    seats = (await bench.plan()).route.seats
    with bench.engine.admit("local"), await seats.take():
        bench.engine.reconfigure(smaller)
        assert (await bench.plan()).route.seats is seats
        with pytest.raises(Unavailable, match="max_concurrent_requests"):
            bench.engine.admit("local").__enter__()
        with pytest.raises(Unavailable, match="limit of 1 concurrent calls"):
            await seats.take()
