"""Responses made in rounds: inference, the gateway's own calls, inference again."""

import asyncio
import json

import pytest
from engine.doubles import Bench, Reply, refusal, settle, streamed, types, whole
from engine.test_run import ended
from harness.engine import Answer, call, message, reasoning, says
from harness.tools import MCP, SEARCH, ScriptedListing, ScriptedTools, always, listed, returned, tool, when

from gateway.ports import ApprovedCall, HostedResult
from gateway.protocol.errors import InvalidRequest, Unavailable, UpstreamRefused

LOOK = tool("look")
CALL = call("mcp__s__look", '{"a": "x"}', "call_1")
OTHER = call("mcp__s__look", '{"a": "y"}', "call_2")
F = {"type": "function", "name": "f", "parameters": {}}
WEB = tool("web_search", "", "web_search_call")
SEARCHING = call("web_search", '{"queries": ["cats", "dogs"]}', "call_s")
ASKED = tool("pay", kind="mcp_approval_request")
PAYS = call("mcp__s__pay", '{"sum": 5}', "call_p")

both_ways = pytest.mark.parametrize("way", ["json", "stream"])


def calls(*items, status="completed"):
    return Answer(list(items), chunk=5, status=status)


async def play(way, bench, *answers, **fields):
    """The response, made in one form or the other; the stream keeps all rules of streams."""
    if way == "json":
        return await bench.answer(*map(whole, answers), **fields)
    return ended(await bench.stream(*map(streamed, answers), **fields))


def kinds(response):
    return [item["type"] for item in response["output"]]


def sent(bench):
    return [[item["type"] for item in body["input"]] for body in bench.upstream.bodies]


# ---------------------------------------------------------------- one call


@both_ways
@pytest.mark.checklist(601)
async def test_a_call_is_run_and_the_model_asked_again(way):
    bench = Bench(tools=ScriptedTools(known=[LOOK]))
    response = await play(way, bench, calls(reasoning("Hm."), CALL), says("It is x."), tools=[MCP])
    assert (response["status"], kinds(response)) == ("completed", ["reasoning", "mcp_call", "message"])
    item = response["output"][1]
    assert item == {
        "id": item["id"], "type": "mcp_call", "status": "completed", "approval_request_id": None, "error": None,
        "arguments": '{"a": "x"}', "name": "look", "output": '{"a": "x"}', "server_label": "s",
    }  # fmt: skip
    first, second = bench.upstream.bodies
    assert [tool["name"] for tool in first["tools"]] == ["mcp__s__look"]
    assert second["tools"] == first["tools"]
    assert second["input"][: len(first["input"])] == first["input"]
    assert second["input"][-2:] == [
        {"type": "function_call", "call_id": item["id"], "name": "mcp__s__look", "arguments": '{"a": "x"}'},
        {"type": "function_call_output", "call_id": item["id"], "output": '{"a": "x"}'},
    ]


async def test_both_ways_make_the_same_response():
    answers = [calls(reasoning("Hm."), CALL), says("It is x.")]
    made = [
        await play(way, Bench(tools=ScriptedTools(known=[LOOK])), *answers, tools=[MCP]) for way in ("json", "stream")
    ]
    assert made[0] == made[1]


async def test_the_events_of_a_call():
    bench = Bench(tools=ScriptedTools(known=[LOOK]))
    told = await bench.stream(streamed(calls(CALL)), streamed(says("x", chunk=9)), tools=[MCP])
    assert types(told)[2:9] == [
        "output_item.added", "mcp_call.in_progress", "mcp_call_arguments.delta", "mcp_call_arguments.delta",
        "mcp_call_arguments.done", "mcp_call.completed", "output_item.done",
    ]  # fmt: skip


@both_ways
async def test_a_call_that_fails_is_told_to_the_model_and_the_response_goes_on(way):
    failed = HostedResult(
        output="No such city.", size=13, fields={"status": "failed", "error": {"message": "x"}}, failed=True
    )
    bench = Bench(tools=ScriptedTools({"look": always(failed)}, known=[LOOK]))
    response = await play(way, bench, calls(CALL), says("Sorry."), tools=[MCP])
    assert response["status"] == "completed"
    assert (response["output"][0]["status"], response["output"][0]["error"]) == ("failed", {"message": "x"})
    assert bench.upstream.bodies[1]["input"][-1]["output"] == "No such city."
    assert bench.sample("tool_calls_total", kind="mcp_call", outcome="failed") == 1


@both_ways
@pytest.mark.checklist(44)
async def test_usage_is_the_sum_of_the_rounds(way):
    bench = Bench(tools=ScriptedTools(known=[LOOK]))
    response = await play(way, bench, calls(CALL), says("x"), tools=[MCP])
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (10, 14)


async def test_a_search_shows_what_it_looks_for():
    found = HostedResult(output="1. Cats", size=7, fields={"status": "completed"})
    bench = Bench(tools=ScriptedTools({"web_search": always(found)}, known=[WEB]))
    told = await bench.stream(streamed(calls(SEARCHING)), streamed(says("x")), tools=[SEARCH])
    assert types(told)[2:7] == [
        "output_item.added", "web_search_call.in_progress", "web_search_call.searching", "web_search_call.completed",
        "output_item.done",
    ]  # fmt: skip
    item = ended(told)["output"][0]
    action = {"type": "search", "query": "cats", "queries": ["cats", "dogs"]}
    assert item == {"id": item["id"], "type": "web_search_call", "status": "completed", "action": action}
    assert told[2]["item"]["action"] == action
    assert bench.upstream.bodies[1]["input"][-1]["output"] == "1. Cats"


@pytest.mark.parametrize(
    ("known", "declared", "kind"),
    [
        ([LOOK], [], "mcp_call"),
        ([LOOK, tool("look", "other")], [], "function_call"),
        ([LOOK], [{**F, "name": "look"}], "function_call"),
        ([LOOK], [{"type": "namespace", "name": "n", "tools": [{**F, "name": "look"}]}], "function_call"),
    ],
    ids=["one", "two servers", "a function", "of a namespace"],
)
async def test_a_bare_name_is_understood_where_it_means_one_tool(known, declared, kind):
    bench = Bench(tools=ScriptedTools(known=known))
    called = calls(call("look", "{}", "call_1"))
    response = await bench.answer(whole(called), whole(says("x")), tools=[MCP, *declared])
    assert kinds(response)[0] == kind


# ---------------------------------------------------------------- several calls


@pytest.mark.checklist(602)
async def test_calls_of_a_round_run_at_once_and_are_told_in_their_order():
    first, second = asyncio.Event(), asyncio.Event()
    tools = ScriptedTools({"look": when(first, "one"), "see": when(second, "two")}, known=[LOOK, tool("see")])
    bench = Bench(tools=tools)
    both = calls(CALL, call("mcp__s__see", "{}", "call_2"))
    listener, _ = await bench.start(streamed(both), streamed(says("x")), tools=[MCP])
    told = await listener.take_until_silent()
    assert [one.tool.name for one in tools.calls] == ["look", "see"]
    assert types(told)[-1] == "mcp_call_arguments.done"
    second.set()
    await settle()
    assert listener.take() == []
    first.set()
    told += await listener.take_all()
    assert [item["output"] for item in ended(told)["output"][:2]] == ["one", "two"]
    assert [item["type"] for item in bench.upstream.bodies[1]["input"][-4:]] == [
        "function_call", "function_call_output", "function_call", "function_call_output",
    ]  # fmt: skip


@both_ways
@pytest.mark.checklist(609)
@pytest.mark.parametrize("own", [{}, {"id": CALL["id"]}], ids=["", "of one item id"])
async def test_calls_of_one_call_id_are_two_calls(way, own):
    tools = ScriptedTools(known=[LOOK])
    bench = Bench(tools=tools)
    response = await play(way, bench, calls(CALL, {**OTHER, "call_id": "call_1", **own}), says("x"), tools=[MCP])
    assert [item["output"] for item in response["output"][:2]] == ['{"a": "x"}', '{"a": "y"}']
    told = [item["call_id"] for item in bench.upstream.bodies[1]["input"][1:]]
    assert told == [response["output"][0]["id"]] * 2 + [response["output"][1]["id"]] * 2


@pytest.mark.checklist(602)
async def test_without_parallel_calls_they_run_one_after_the_other():
    first = asyncio.Event()
    tools = ScriptedTools({"look": when(first, "one")}, known=[LOOK, tool("see")])
    bench = Bench(tools=tools)
    both = calls(CALL, call("mcp__s__see", "{}", "call_2"))
    listener, _ = await bench.start(streamed(both), streamed(says("x")), tools=[MCP], parallel_tool_calls=False)
    await listener.take_until_silent()
    assert [one.tool.name for one in tools.calls] == ["look"]
    first.set()
    await listener.take_all()
    assert [one.tool.name for one in tools.calls] == ["look", "see"]
    assert all(body["parallel_tool_calls"] is False for body in bench.upstream.bodies)


@pytest.mark.checklist(602)
async def test_places_bound_what_runs_over_all_responses():
    free = asyncio.Event()
    tools = ScriptedTools({"look": when(free, "one")}, known=[LOOK])
    bench = Bench(tools=tools, bounds={"max_concurrent_materializations": 2})
    streams = [await bench.start(streamed(calls(CALL, OTHER)), tools=[MCP]) for _ in range(2)]
    for listener, _ in streams:
        await listener.take_until_silent()
    assert len(tools.calls) == 2
    assert (bench.sample("tool_work_running"), bench.sample("tool_work_waiting")) == (2, 2)
    # Who needs no tool waits for nobody, and who leaves the line holds nothing.
    assert (await bench.answer(whole(says("x"))))["status"] == "completed"
    streams[1][1].cancel()
    bench.upstream.replies.append(streamed(says("x")))
    free.set()
    await streams[0][0].take_all()
    await settle()
    assert (bench.sample("tool_work_running"), bench.sample("tool_work_waiting")) == (0, 0)
    assert bench.sample("tool_work_running_high_water") == 2


@both_ways
@pytest.mark.checklist(604)
async def test_calls_of_the_client_end_the_turn_after_those_of_the_gateway_were_run(way):
    bench = Bench(tools=ScriptedTools(known=[LOOK]))
    mixed = calls(call("f", "{}", "call_f"), CALL)
    response = await play(way, bench, mixed, tools=[MCP, F])
    assert (response["status"], kinds(response)) == ("completed", ["function_call", "mcp_call"])
    assert response["output"][1]["status"] == "completed"
    result = {"type": "function_call_output", "call_id": "call_f", "output": "done"}
    after = await play(way, bench, says("x"), tools=[MCP, F], previous_response_id=response["id"], input=[result])
    assert after["status"] == "completed"
    assert sent(bench)[1] == [
        "message", "function_call", "function_call", "function_call_output", "function_call_output",
    ]  # fmt: skip


# ---------------------------------------------------------------- how many


@both_ways
@pytest.mark.checklist(603)
async def test_further_calls_are_neither_run_nor_shown(way):
    tools = ScriptedTools(known=[LOOK])
    bench = Bench(tools=tools)
    response = await play(way, bench, calls(CALL, OTHER), says("x"), tools=[MCP], max_tool_calls=1)
    assert (response["status"], kinds(response)) == ("completed", ["mcp_call", "message"])
    assert len(tools.calls) == 1
    first, second = bench.upstream.bodies
    assert (first["tool_choice"], second["tool_choice"]) == ("auto", "none")
    assert sent(bench)[1] == ["message", "function_call", "function_call_output"]


@both_ways
@pytest.mark.checklist(603)
async def test_a_model_that_goes_on_calling_is_asked_once_more_and_no_more(way):
    bench = Bench(tools=ScriptedTools(known=[LOOK]))
    response = await play(way, bench, calls(CALL), calls(OTHER), says("x"), tools=[MCP], max_tool_calls=1)
    assert kinds(response) == ["mcp_call", "message"]
    bench = Bench(tools=ScriptedTools(known=[LOOK]))
    response = await play(way, bench, calls(CALL), calls(OTHER), calls(OTHER), tools=[MCP], max_tool_calls=1)
    assert (response["status"], kinds(response), len(bench.upstream.calls)) == ("completed", ["mcp_call"], 3)
    assert [body["tool_choice"] for body in bench.upstream.bodies] == ["auto", "none", "none"]


@both_ways
@pytest.mark.checklist(603)
async def test_the_cap_on_rounds_ends_the_response_as_incomplete(way):
    bench = Bench(tools=ScriptedTools(known=[LOOK]), rounds=2)
    response = await play(way, bench, calls(CALL), calls(OTHER), tools=[MCP])
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_messages"})
    assert [item["status"] for item in response["output"]] == ["completed", "completed"]
    assert await bench.stored(response["id"]) is not None
    assert bench.sample("tool_rounds_sum") == 2


# ---------------------------------------------------------------- what the client chose


@pytest.mark.parametrize(
    ("choice", "first"),
    [
        ("required", "required"),
        ({"type": "mcp", "server_label": "s", "name": "look"}, {"type": "function", "name": "mcp__s__look"}),
        ({"type": "function", "name": "f"}, {"type": "function", "name": "f"}),
        ("auto", "auto"),
    ],
)
@pytest.mark.checklist(605)
async def test_a_call_is_required_of_the_first_round_only(choice, first):
    bench = Bench(tools=ScriptedTools(known=[LOOK]))
    response = await bench.answer(whole(calls(CALL)), whole(says("x")), tools=[MCP, F], tool_choice=choice)
    assert [body["tool_choice"] for body in bench.upstream.bodies] == [first, "auto"]
    assert response["tool_choice"] == choice


@both_ways
@pytest.mark.checklist(605)
async def test_what_the_choice_rules_out_is_not_run(way):
    """A model may call what it was not offered, from its history for example."""
    tools = ScriptedTools(known=[LOOK, tool("see")])
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp", "server_label": "s", "name": "see"}]}
    response = await play(way, Bench(tools=tools), calls(CALL), tools=[MCP], tool_choice=allowed)
    assert [(item["type"], item["name"]) for item in response["output"]] == [("function_call", "mcp__s__look")]
    response = await play(way, Bench(tools=tools), calls(CALL), says("x"), tools=[MCP], tool_choice="none")
    assert [item["type"] for item in response["output"]] == ["message"]
    assert tools.calls == []


@pytest.mark.checklist(605)
async def test_allowed_tools_stay_the_only_ones():
    bench = Bench(tools=ScriptedTools(known=[LOOK, tool("see")]))
    choice = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "mcp", "server_label": "s", "name": "see"}],
    }
    await bench.answer(
        whole(calls(call("mcp__s__see", "{}", "1"))), whole(says("x")), tools=[MCP, F], tool_choice=choice
    )
    assert [[tool["name"] for tool in body["tools"]] for body in bench.upstream.bodies] == [["mcp__s__see"]] * 2
    assert [body["tool_choice"] for body in bench.upstream.bodies] == ["required", "auto"]


@both_ways
@pytest.mark.checklist(605)
async def test_a_choice_of_what_no_server_offers_is_refused(way):
    tools = ScriptedTools(servers=[ScriptedListing("s", listed())])
    bench = Bench(tools=tools)
    with pytest.raises(InvalidRequest, match="a tool of the MCP server 's'"):
        await play(way, bench, tools=[MCP], tool_choice={"type": "mcp", "server_label": "s"})
    assert (bench.upstream.calls, tools.closed) == ([], 1)


async def test_declarations_are_checked_and_echoed_without_what_is_secret():
    bench = Bench(tools=ScriptedTools(known=[LOOK]))
    with pytest.raises(InvalidRequest) as refused:
        await bench.answer(tools=[F, {"type": "mcp"}])
    assert refused.value.param == "tools[1].server_label"
    response = await bench.answer(whole(says("x")), tools=[{**MCP, "authorization": "s3cret"}])
    assert response["tools"] == [MCP]


# ---------------------------------------------------------------- listings


@both_ways
async def test_servers_are_asked_before_the_model(way):
    server = ScriptedListing("s", listed(LOOK))
    bench = Bench(tools=ScriptedTools(servers=[server]))
    response = await play(way, bench, calls(CALL), says("x"), tools=[MCP])
    assert kinds(response) == ["mcp_list_tools", "mcp_call", "message"]
    item = response["output"][0]
    shown = {"id": item["id"], "type": "mcp_list_tools", "status": "completed", "server_label": "s"}
    assert item == {**shown, "tools": server.outcome.tools}
    assert sent(bench) == [["message"], ["message", "function_call", "function_call_output"]]
    assert bench.sample("tool_listings_total", outcome="completed") == 1


async def test_the_events_of_listings_follow_the_order_of_the_servers():
    may = asyncio.Event()
    slow, dead = ScriptedListing("s", listed(LOOK), may), ScriptedListing("d", listed())
    dead.outcome = type(dead.outcome)(tools=(), offered=(), size=0, error="unreachable")
    bench = Bench(tools=ScriptedTools(servers=[slow, dead]), server={"commit_after_seconds": 0.001})
    listener, _ = await bench.start(streamed(says("x")), tools=[MCP, {**MCP, "server_label": "d"}])
    told = await listener.take_until_silent()
    assert types(told)[2:] == ["output_item.added", "mcp_list_tools.in_progress"]
    may.set()
    told += await listener.take_all()
    assert types(told)[2:10] == [
        "output_item.added", "mcp_list_tools.in_progress", "mcp_list_tools.completed", "output_item.done",
        "output_item.added", "mcp_list_tools.in_progress", "mcp_list_tools.failed", "output_item.done",
    ]  # fmt: skip
    item = ended(told)["output"][1]
    assert (item["status"], item["error"]) == ("failed", "unreachable")
    assert bench.sample("tool_listings_total", outcome="failed") == 1


async def test_tools_are_offered_in_the_same_order_whoever_had_to_be_asked():
    ann, bob = tool("look", "ann"), tool("look", "bob")
    fresh = Bench(tools=ScriptedTools(servers=[ScriptedListing("bob", listed(bob))], known=[ann, WEB]))
    later = Bench(tools=ScriptedTools(known=[bob, WEB, ann]))
    for bench in (fresh, later):
        await bench.answer(whole(says("x")), tools=[MCP, SEARCH])
    assert fresh.upstream.bodies[0]["tools"] == later.upstream.bodies[0]["tools"]


async def test_a_warm_up_opens_no_toolkit():
    tools = ScriptedTools(known=[LOOK])
    bench = Bench(tools=tools)
    raw = {"model": "m", "input": "hi", "tools": [MCP], "generate": False}
    request, route = bench.engine.read_fields(raw, on_websocket=True)
    plan = await bench.engine.prepare((await bench.plan()).caller, request, route)
    assert (plan.open_tools, tools.contexts) == (None, [])


async def test_a_request_without_such_tools_opens_no_toolkit():
    tools = ScriptedTools(known=[LOOK])
    bench = Bench(tools=tools)
    await bench.answer(whole(says("x")), tools=[F])
    assert tools.contexts == []


# ---------------------------------------------------------------- approvals


@both_ways
async def test_a_call_to_be_approved_ends_the_turn(way):
    bench = Bench(tools=ScriptedTools(known=[ASKED]))
    response = await play(way, bench, calls(PAYS), tools=[MCP])
    (item,) = response["output"]
    assert item == {
        "id": item["id"], "type": "mcp_approval_request", "status": "completed", "arguments": '{"sum": 5}',
        "name": "pay", "server_label": "s",
    }  # fmt: skip
    assert response["status"] == "completed"


async def test_the_events_of_a_request_for_approval():
    told = await Bench(tools=ScriptedTools(known=[ASKED])).stream(streamed(calls(PAYS)), tools=[MCP])
    assert types(told)[2:] == ["output_item.added", "output_item.done", "completed"]
    assert told[2]["item"] == {**told[3]["item"], "arguments": "", "status": "in_progress"}


async def decide(way, *answers, approve, **fields):
    """A response to which a call was put for approval, and the one that follows the client's decision."""
    tools = ScriptedTools(known=[ASKED])
    bench = Bench(tools=tools)
    asked = await play(way, bench, calls(PAYS), tools=[MCP])
    request = asked["output"][0]
    tools.known = [ASKED]
    tools.decisions = [
        ApprovedCall(request_id=request["id"], tool=tool("pay"), arguments=request["arguments"], approved=approve)
    ]
    word = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": approve}
    items = [word, {"role": "user", "content": "Go on."}]
    response = await play(way, bench, *answers, tools=[MCP], previous_response_id=asked["id"], input=items, **fields)
    return bench, tools, request, response


@both_ways
async def test_an_approved_call_is_run_before_the_model_is_asked(way):
    bench, tools, request, response = await decide(way, says("Paid."), approve=True)
    assert kinds(response) == ["mcp_call", "message"]
    assert response["output"][0]["approval_request_id"] == request["id"]
    assert response["output"][0]["arguments"] == tools.calls[0].arguments == '{"sum": 5}'
    expected = [
        {"type": "function_call", "call_id": request["id"], "name": "mcp__s__pay", "arguments": '{"sum": 5}'},
        {"type": "function_call_output", "call_id": request["id"], "output": '{"sum": 5}'},
    ]
    assert bench.upstream.bodies[1]["input"][1:3] == expected
    # A continuation tells the model the same.
    await play(way, bench, says("x"), tools=[], previous_response_id=response["id"])
    assert (
        bench.upstream.bodies[2]["input"][: len(bench.upstream.bodies[1]["input"])] == bench.upstream.bodies[1]["input"]
    )


@both_ways
async def test_a_declined_call_is_told_to_the_model_and_not_run(way):
    bench, tools, _, response = await decide(way, says("Then not."), approve=False)
    assert (kinds(response), tools.calls) == (["message"], [])
    assert bench.upstream.bodies[1]["input"][2]["output"] == "The user declined this tool call."


async def test_an_approved_call_counts():
    bench, tools, _, response = await decide("json", says("x"), approve=True, max_tool_calls=1)
    assert (len(tools.calls), bench.upstream.bodies[1]["tool_choice"]) == (1, "auto")
    assert kinds(response) == ["mcp_call", "message"]


# ---------------------------------------------------------------- history


@both_ways
@pytest.mark.checklist(40)
async def test_a_continuation_replays_what_the_model_was_told(way):
    bench = Bench(tools=ScriptedTools(servers=[ScriptedListing("s", listed(LOOK))]))
    one = await play(way, bench, calls(reasoning("Hm."), CALL), calls(OTHER), says("It is x."), tools=[MCP])
    await play(way, bench, says("y"), tools=[MCP], previous_response_id=one["id"])
    told, replayed = bench.upstream.bodies[2]["input"], bench.upstream.bodies[3]["input"]
    assert replayed[: len(told)] == told
    assert [item["type"] for item in replayed[len(told) :]] == ["message", "message"]
    assert bench.upstream.bodies[3]["tools"] == bench.upstream.bodies[2]["tools"]


@pytest.mark.checklist(41)
async def test_what_is_stored_is_what_was_told():
    bench = Bench(tools=ScriptedTools(servers=[ScriptedListing("s", listed(LOOK))]))
    told = await bench.stream(streamed(calls(CALL)), streamed(says("x")), tools=[MCP])
    done = [event["item"] for event in told if event["type"] == "response.output_item.done"]
    response = ended(told)
    assert done == response["output"]
    assert json.loads(await bench.engine.retrieve("local", response["id"])) == response


async def test_toolkits_see_the_input_as_the_client_does():
    tools = ScriptedTools(known=[LOOK])
    bench = Bench(tools=tools)
    one = await bench.answer(whole(calls(CALL)), whole(says("x")), tools=[MCP])
    await bench.answer(
        whole(says("y")), tools=[MCP, F], previous_response_id=one["id"], include=["web_search_call.action.sources"]
    )
    context = tools.contexts[1]
    assert [item["type"] for item in context.items] == ["message", "mcp_call", "message", "message"]
    assert (context.first_new, context.principal, context.names) == (3, "local", {"f"})
    assert context.include == {"web_search_call.action.sources"}


# ---------------------------------------------------------------- early ends


@both_ways
async def test_nothing_is_run_with_half_its_arguments(way):
    tools = ScriptedTools(known=[LOOK])
    bench = Bench(tools=tools)
    response = await play(way, bench, calls(CALL, call("mcp__s__look", '{"a"', "2"), status="incomplete"), tools=[MCP])
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]
    assert [one.arguments for one in tools.calls] == ['{"a": "x"}']


async def test_a_cut_search_is_incomplete():
    bench = Bench(tools=ScriptedTools(known=[WEB]))
    cut = calls(message("So."), call("web_search", '{"que', "2"), status="incomplete")
    response = ended(await bench.stream(streamed(cut), tools=[SEARCH]))
    assert response["status"] == "incomplete"
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]


@both_ways
async def test_nobody_is_asked_to_approve_what_was_cut_off(way):
    bench = Bench(tools=ScriptedTools(known=[ASKED]))
    response = await play(way, bench, calls(message("So."), PAYS, status="incomplete"), tools=[MCP])
    assert response["status"] == "incomplete"
    assert [(item["type"], item["status"]) for item in response["output"]] == [("message", "completed")]


@both_ways
@pytest.mark.checklist(32)
async def test_a_refusal_in_a_later_round_fails_the_response(way):
    tools = ScriptedTools(known=[LOOK])
    bench = Bench(tools=tools)
    bench.upstream.replies.extend([whole(calls(CALL)) if way == "json" else streamed(calls(CALL))])
    bench.upstream.replies.append(Reply(error=refusal()))
    if way == "json":
        with pytest.raises(UpstreamRefused):
            await bench.answer(tools=[MCP])
    else:
        response = ended(await bench.stream(tools=[MCP]))
        assert (response["status"], response["error"]["code"]) == ("failed", "busy")
        assert kinds(response) == ["mcp_call"]
        assert await bench.stored(response["id"]) is None
    assert tools.closed == 1


async def test_a_refusal_of_the_first_round_keeps_its_status_although_servers_were_asked():
    bench = Bench(tools=ScriptedTools(servers=[ScriptedListing("s", listed(LOOK))]))
    with pytest.raises(UpstreamRefused):
        await bench.stream(Reply(error=refusal()), tools=[MCP])


@pytest.mark.checklist(610)
async def test_a_client_that_leaves_ends_calls_at_once():
    tools = ScriptedTools({"look": when(asyncio.Event(), "")}, known=[LOOK])
    bench = Bench(tools=tools)
    listener, task = await bench.start(streamed(calls(CALL, OTHER)), tools=[MCP])
    await listener.take_until_silent()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (tools.cancelled, tools.closed) == (["look", "look"], 1)
    assert bench.sample("tool_calls_total", kind="mcp_call", outcome="cancelled") == 2


@pytest.mark.checklist(610)
async def test_a_client_that_leaves_ends_listings_at_once():
    server = ScriptedListing("s", listed(), asyncio.Event())
    tools = ScriptedTools(servers=[server])
    bench = Bench(tools=tools)
    _, task = await bench.start(tools=[MCP])
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (server.cancelled, tools.closed) == (True, 1)


@pytest.mark.parametrize("calling", [1, 2])
@pytest.mark.checklist(610)
async def test_a_gateway_that_stops_ends_calls_and_tells_the_client(calling):
    tools = ScriptedTools({"look": when(asyncio.Event(), "")}, known=[LOOK])
    bench = Bench(tools=tools)
    listener, _ = await bench.start(streamed(calls(*[CALL, OTHER][:calling])), tools=[MCP])
    told = await listener.take_until_silent()
    assert bench.engine.cut_off() == 1
    response = ended(told + await listener.take_all())
    assert (response["status"], response["error"]["code"]) == ("failed", Unavailable.code)
    assert (len(tools.cancelled), tools.closed) == (calling, 1)


@pytest.mark.checklist(610)
async def test_the_deadline_covers_calls():
    tools = ScriptedTools({"look": when(asyncio.Event(), "")}, known=[LOOK])
    bench = Bench(tools=tools, deadline=0.05)
    response = ended(await bench.stream(streamed(calls(CALL)), tools=[MCP]))
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert tools.cancelled == ["look"]


@pytest.mark.checklist(607)
async def test_a_call_has_a_time_of_its_own():
    tools = ScriptedTools({"look": when(asyncio.Event(), "")}, known=[LOOK])
    bench = Bench(tools=tools, bounds={"call_timeout_seconds": 0.02})
    response = await bench.answer(whole(calls(CALL)), whole(says("x")), tools=[MCP])
    assert (response["status"], response["output"][0]["status"]) == ("completed", "failed")
    assert "within 0.02 seconds" in bench.upstream.bodies[1]["input"][-1]["output"]
    assert bench.sample("rejections_total", key="tools.call_timeout_seconds") == 1


@pytest.mark.parametrize(("size", "status"), [(1000, "completed"), (1001, "failed")])
@pytest.mark.checklist(607)
async def test_an_output_above_its_bound_is_a_failed_call(size, status):
    tools = ScriptedTools({"look": always(returned("x" * size))}, known=[LOOK])
    bench = Bench(tools=tools, bounds={"max_output_bytes": 1000})
    response = await bench.answer(whole(calls(CALL)), whole(says("x")), tools=[MCP])
    assert (response["status"], response["output"][0]["status"]) == ("completed", status)
    told = bench.upstream.bodies[1]["input"][-1]["output"]
    assert ("above the limit of 1000 bytes" in told) == (status == "failed")


@pytest.mark.checklist(607)
async def test_a_tool_that_breaks_is_a_failed_call(caplog):
    async def break_down(_):
        raise RuntimeError("s3cret")

    bench = Bench(tools=ScriptedTools({"look": break_down}, known=[LOOK]))
    response = await bench.answer(whole(calls(CALL)), whole(says("x")), tools=[MCP])
    assert response["output"][0]["status"] == "failed"
    assert "s3cret" not in str(response)
    assert "failed unexpectedly" in caplog.text


async def test_a_toolkit_that_cannot_be_closed_does_not_keep_the_answer(caplog):
    class Stuck(ScriptedTools):
        async def close(self):
            raise RuntimeError("stuck")

    bench = Bench(tools=Stuck(known=[LOOK]))
    assert (await bench.answer(whole(says("x")), tools=[MCP]))["status"] == "completed"
    assert "could not be closed" in caplog.text
