"""What a request for a tree of agents continues, and what it must not."""

import asyncio
import json
from typing import Any

import pytest
from engine.agents.bench import ALPHA, BETA, ROOT, TOOL
from engine.agents.clients import ON, Client, output
from engine.doubles import Listener, OpenSealer, types
from harness.agents import PLAIN, call, say, spawn, wait
from msgspec import structs

from gateway.config.schema import MultiAgentConfig
from gateway.engine.plan import Caller
from gateway.ports import Deletion, StoredResponse
from gateway.protocol.agents.asked import AgentsRequest
from gateway.protocol.errors import GatewayError, ResourceLimitExceeded, StorageUnavailable
from gateway.storage.memory import MemoryStore

Json = dict[str, Any]

NOT_FOUND = ("previous_response_id", "previous_response_not_found")
LIMIT = "multi_agent.max_concurrent_subagents"
ASKS = [call("get_proposal", {"of": "alpha"}, id="ask_1")]


async def test_a_conversation_of_one_becomes_the_roots() -> None:
    client = Client({PLAIN: [[say("plain")]], ROOT: [[say("as a tree")]]})
    first = await client.answer(multi_agent=None)
    second = await client.answer(previous_response_id=first["id"], input="more")
    assert [item["type"] for item in client.played.asked[-1].body["input"]] == ["message"] * 3
    assert second["previous_response_id"] == first["id"]
    history = await client.bench.store.history("local", second["id"])
    assert [row.path for row in history.tree] == ["/root"]


@pytest.mark.agents(90)
async def test_a_tree_stays_one() -> None:
    client = Client({ROOT: [[say("one")], [say("two")], [say("three")], [say("four")]]})
    first = await client.answer(multi_agent=ON | {"max_concurrent_subagents": 2})
    plan = await client.plan(multi_agent=None, previous_response_id=first["id"])
    assert plan.tree is not None
    assert plan.tree.bounds.max_concurrent == 2
    assert plan.request.agents == AgentsRequest(2)
    second = await client.answer(multi_agent=None, previous_response_id=first["id"])
    # What was inherited is inherited on; what is asked for anew begins with the default.
    third = await client.answer(multi_agent=None, previous_response_id=second["id"])
    plan = await client.plan(previous_response_id=third["id"])
    assert plan.tree is not None
    assert plan.tree.bounds.max_concurrent == 3
    given = {"multi_agent": {"enabled": False}, "previous_response_id": third["id"]}
    assert await client.refusal(**given) == ("multi_agent", "invalid_value")
    assert (await client.answer(previous_response_id=third["id"]))["status"] == "completed"
    assert len(client.played.of(ROOT)[-1].body["input"]) == 7


@pytest.mark.agents(90)
async def test_no_fewer_may_be_active_than_are() -> None:
    script = {ROOT: [[spawn("alpha"), spawn("beta"), wait()], [say("done")]]}
    client = Client({**script, ALPHA: [ASKS], BETA: [[call("get_proposal", id="ask_2")]]})
    first = await client.answer()
    fewer = {"previous_response_id": first["id"], "multi_agent": ON | {"max_concurrent_subagents": 1}}
    answers = [output("ask_1"), output("ask_2")]
    assert await client.refusal(**fewer, input=answers) == (LIMIT, "invalid_value")
    plan = await client.plan(previous_response_id=first["id"], input=answers)
    assert plan.tree is not None
    assert plan.tree.active == 2


@pytest.mark.agents(90)
@pytest.mark.parametrize(
    ("given", "refused"),
    [
        ({"store": False}, ("store", "unsupported_parameter")),
        ({"max_tool_calls": 2}, ("max_tool_calls", "unsupported_parameter")),
        ({"reasoning": {"summary": "auto"}}, ("reasoning.summary", "unsupported_parameter")),
        ({"tools": [{"type": "function", "name": "spawn_agent"}]}, ("tools[0].name", "invalid_value")),
        ({"background": True}, ("background", "unsupported_parameter")),
    ],
)
async def test_what_is_inherited_is_checked_likewise(given: Json, refused: tuple[str, str]) -> None:
    client = Client({ROOT: [[say("one")]]})
    first = await client.answer()
    assert await client.refusal(multi_agent=None, previous_response_id=first["id"], **given) == refused


async def test_trees_that_are_switched_off_are_not_continued() -> None:
    client = Client({ROOT: [[say("one")]]})
    first = await client.answer()
    closed = Client(store=client.bench.store, agents={"enabled": False})
    for given in (ON, None):
        refused = await closed.refusal(multi_agent=given, previous_response_id=first["id"])
        assert refused == ("multi_agent", "unsupported_parameter")
    lower = Client(store=client.bench.store, agents={"max_concurrent_subagents_ceiling": 2})
    assert await lower.refusal(multi_agent=None, previous_response_id=first["id"]) == (LIMIT, "integer_above_max_value")


async def test_without_keys_agents_write_openly_or_not_at_all() -> None:
    asks = [spawn("alpha", "Look."), call("list_agents", {}), wait()]
    script = {ROOT: [asks, [say("done")]], ALPHA: [[say("found")]]}
    refused = await Client(script, sealer=None).refusal()
    assert refused == ("multi_agent", "unsupported_parameter")
    told = await Client(script, sealer=None, agents={"message_visibility": "plain"}).answer()
    assert "Look." in json.dumps(told["output"])
    assert "last_task_message" in json.dumps(told["output"])
    sealed = (await Client(script).answer())["output"]
    assert "last_task_message" not in json.dumps(sealed)
    (message, *_) = [item for item in sealed if item["type"] == "agent_message"]
    (part,) = message["content"]
    assert part["type"] == "encrypted_content"
    assert OpenSealer().unseal("local", "agent_message", part["encrypted_content"]) == b"Look."


@pytest.mark.agents(18)
async def test_outputs_have_to_fit_the_calls_that_wait() -> None:
    client = Client({ROOT: [ASKS, [say("thanks")]]})
    first = await client.answer()
    for given, refused in (
        ([], ("input", "missing_tool_output")),
        ([{"role": "user", "content": "well?"}], ("input", "missing_tool_output")),
        ([output("ask_1"), output("ask_9")], ("input[1].call_id", "invalid_tool_output")),
        ([output("ask_1"), output("ask_1")], ("input[1].call_id", "invalid_tool_output")),
        (
            [{"type": "custom_tool_call_output", "call_id": "ask_1", "output": "x"}],
            ("input[0].call_id", "invalid_tool_output"),
        ),
    ):
        assert await client.refusal(previous_response_id=first["id"], input=given) == refused
    assert await client.refusal(previous_response_id="resp_none") == (
        "previous_response_id",
        "previous_response_not_found",
    )
    assert await client.refusal(principal="bob", previous_response_id=first["id"]) == NOT_FOUND
    second = await client.answer(previous_response_id=first["id"], input=[output("ask_1")])
    assert second["output"][-1]["content"][0]["text"] == "thanks"


async def test_items_of_a_tree_are_not_referred_to() -> None:
    client = Client({ROOT: [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[say("found")]], PLAIN: [[say("ok")]]})
    told = (await client.answer())["output"]
    for item in told:
        reference = [{"type": "item_reference", "id": item["id"]}]
        if item["type"] == "message":
            await client.plan(input=reference)
        else:
            for given in (ON, None):
                refused = await client.refusal(input=reference, multi_agent=given)
                assert refused == ("input[0].type", "unsupported_value")


@pytest.mark.agents(88)
async def test_one_parent_may_be_continued_twice() -> None:
    client = Client({ROOT: [ASKS, [say("one")], [say("other")]]})
    first = await client.answer()
    for text in ("one", "other"):
        told = await client.answer(previous_response_id=first["id"], input=[output("ask_1", text)])
        assert told["output"][-1]["content"][0]["text"] == text
        assert client.played.asked[-1].texts[-1] == text


async def test_a_deleted_tree_goes_on_in_what_continues_it() -> None:
    client = Client({ROOT: [[say("one")], [say("two")], [say("three")]]})
    first = await client.answer()
    second = await client.answer(previous_response_id=first["id"])
    await client.bench.store.delete(Deletion(id=first["id"], principal="local", at=1))
    assert await client.refusal(previous_response_id=first["id"]) == (
        "previous_response_id",
        "previous_response_not_found",
    )
    await client.answer(previous_response_id=second["id"])
    assert len(client.played.asked[-1].body["input"]) == 5


async def test_agents_of_another_version_are_not_guessed_at() -> None:
    client = Client({ROOT: [[say("one")]]})
    first = await client.answer()
    kept = client.bench.store._responses[first["id"]]
    kept.agents[0] = type(kept.agents[0])(path="/root", status="completed", state=b'{"version":99}')
    with pytest.raises(GatewayError, match="another version"):
        await client.plan(previous_response_id=first["id"])


@pytest.mark.parametrize(("entry", "threshold"), [({}, None), ({"compact_threshold": 9}, 9)])
async def test_windows_of_agents_have_a_default_of_their_own(entry: Json, threshold: int | None) -> None:
    client = Client({ROOT: [[say("one")]]})
    first = await client.answer()
    for given in (ON, None):
        fields = {"multi_agent": given, "context_management": [{"type": "compaction", **entry}]}
        plan = await client.plan(previous_response_id=first["id"], **fields)
        assert plan.request.threshold == threshold


async def test_a_trigger_needs_something_to_compact() -> None:
    trigger = [{"type": "compaction_trigger"}]
    assert await Client().refusal(input=trigger) == ("input", "missing_required_parameter")


async def test_notes_of_others_are_refused() -> None:
    token = OpenSealer().seal("bob", "compaction", b'{"version":1,"note":"x"}')
    given = [{"type": "compaction", "encrypted_content": token}, {"role": "user", "content": "hi"}]
    refused = await Client().refusal(input=given)
    assert refused == ("input[0].encrypted_content", "invalid_encrypted_content")


@pytest.mark.agents(7)
async def test_it_is_stored_unless_that_is_refused() -> None:
    client = Client({ROOT: [[say("one")]]})
    made = await client.answer()
    assert made["store"] is True
    assert await client.bench.stored(made["id"]) is not None


async def test_a_warm_up_keeps_the_input_and_asks_nobody() -> None:
    client = Client({ROOT: [ASKS, [say("now")]]})
    engine = client.bench.engine

    async def warm_up(**fields: Any) -> str:
        body = {"model": "m", "tools": [TOOL], "generate": False, **fields}
        request, route = engine.read_fields(body, on_websocket=True, agents_header=True)
        caller = Caller(principal="local", transport="websocket", headers={})
        plan = await engine.prepare(caller, request, route)
        listener = Listener()
        listener.task = asyncio.create_task(engine.stream(plan, listener))
        assert types(await listener.take_all()) == ["created", "completed"]
        return plan.response_id

    first = await warm_up(input="first", multi_agent=ON)
    assert len(client.played) == 0
    second = await client.answer(input="second", previous_response_id=first)
    assert client.played.asked[-1].texts == ["first", "second"]
    answered = await warm_up(input=[output("ask_1")], previous_response_id=second["id"])
    assert len(client.played) == 1
    third = await client.answer(input=[], previous_response_id=answered)
    assert client.played.asked[-1].texts[-1] == "six weeks"
    assert third["output"][-1]["content"][0]["text"] == "now"


class Refusing(MemoryStore):
    """A store whose next append fails if it is told so."""

    refuses = False

    async def append(self, response: StoredResponse) -> None:
        if self.refuses:
            self.refuses = False
            raise StorageUnavailable("The disk is full.")
        await super().append(response)


@pytest.mark.agents(92)
async def test_what_could_not_be_stored_leaves_the_parent_as_it_was() -> None:
    store = Refusing()
    client = Client({ROOT: [ASKS, [say("lost")], [say("again")]]}, store=store)
    first = await client.answer()
    given = {"previous_response_id": first["id"], "input": [output("ask_1")]}
    store.refuses = True
    listener = Listener()
    plan = await client.plan(transport="sse", stream=True, **given)
    listener.task = asyncio.create_task(client.bench.engine.stream(plan, listener))
    told = await listener.take_all()
    assert told[-1]["type"] == "response.failed"
    assert await client.bench.stored(plan.response_id) is None
    assert await client.refusal(previous_response_id=plan.response_id) == NOT_FOUND
    again = await client.answer(**given)
    assert again["output"][-1]["content"][0]["text"] == "again"
    assert len(client.played.asked[-1].body["input"]) == 3


@pytest.mark.agents(93)
async def test_calls_of_one_id_go_to_their_agents() -> None:
    script = {
        ROOT: [[spawn("alpha"), spawn("beta"), wait()], [say("done")], [say("both")]],
        ALPHA: [ASKS, [say("alpha has it")]],
        BETA: [ASKS, [say("beta has it")]],
    }
    client = Client(script)
    first = await client.answer()
    asked = {i["agent"]["agent_name"]: i["call_id"] for i in first["output"] if i["type"] == "function_call"}
    assert len(set(asked.values())) == 2
    answers = [output(asked[BETA], "for beta"), output(asked[ALPHA], "for alpha")]
    await client.answer(previous_response_id=first["id"], input=answers)
    for path in (ALPHA, BETA):
        assert client.played.of(path)[-1].texts[-1] == f"for {path.removeprefix('/root/')}"


@pytest.mark.agents(94)
async def test_the_engines_item_ids_may_repeat() -> None:
    client = Client({ROOT: [[say("one")], [say("two")]]})
    made = [await client.answer(), await client.answer()]
    ids = {item["id"] for response in made for item in response["output"]}
    assert len(ids) == 2
    for response in made:
        stored = await client.bench.stored(response["id"])
        assert stored is not None
        assert [item.id for item in stored.items if item.role == "output"] == [response["output"][0]["id"]]


@pytest.mark.agents(95)
async def test_a_tree_that_grows_too_large_is_not_stored() -> None:
    client = Client({ROOT: [[say("x" * 3000)], [say("on")]]}, agents={"max_tree_bytes": 2000})
    with pytest.raises(ResourceLimitExceeded) as failed:
        await client.answer()
    assert failed.value.code == "response_resource_limit_exceeded"
    assert (failed.value.resource, failed.value.limit) == ("max_tree_bytes", 2000)
    assert client.bench.store._responses == {}


async def test_a_reload_holds_for_every_response_from_then_on() -> None:
    client = Client({ROOT: [[say("one")], [say("two")]]})
    engine, config = client.bench.engine, client.bench.config
    first = await client.answer()
    engine.reconfigure(structs.replace(config, multi_agent=MultiAgentConfig(enabled=False)))
    assert await client.refusal() == ("multi_agent", "unsupported_parameter")
    changed = MultiAgentConfig(default_max_concurrent_subagents=7, max_depth=2, message_visibility="plain")
    engine.reconfigure(structs.replace(config, multi_agent=changed))
    plan = await client.plan(previous_response_id=first["id"])
    assert plan.tree is not None
    assert (plan.tree.bounds.max_concurrent, plan.tree.bounds.max_depth) == (7, 2)
