"""Questions about conversations: a shorter one, and how long one is."""

import asyncio
import json

import pytest
from engine.doubles import NOW, Bench, CountingIds, OpenSealer, Reply, refusal, settle, whole
from harness.engine import Answer, call, says
from harness.tools import MCP, ScriptedTools

from gateway.engine.input_items import Page
from gateway.engine.standalone import Standalone
from gateway.ports import StoredAgent, StoredResponse
from gateway.protocol.compaction_prompt import REQUEST
from gateway.protocol.errors import (
    CompactionFailed,
    ConversationNotFound,
    GatewayError,
    InvalidRequest,
    UpstreamError,
    UpstreamRefused,
)

CONVERSATION = [
    {"role": "developer", "content": "Be brief."},
    {"role": "user", "content": "What is 6 times 7?"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "42, as ever."}]},
    {"role": "user", "content": [{"type": "input_text", "text": "And 7 times 7?"}]},
]


class Questions:
    def __init__(self, *replies, sealer=None, **options):
        self.bench = Bench(*replies, sealer=sealer or OpenSealer(), **options)
        bench = self.bench
        self.standalone = Standalone(bench.engine, bench.store, bench.config, bench.metrics, bench.clock, CountingIds())

    async def compact(self, principal="local", **fields):
        body = json.dumps({"model": "m", "input": CONVERSATION, **fields}).encode()
        return json.loads(await self.standalone.compact(principal, body, ()))

    async def count(self, **fields):
        body = json.dumps({"model": "m", "input": CONVERSATION, **fields}).encode()
        return json.loads(await self.standalone.count_tokens("local", body, ()))


def texts(items):
    return [item["content"][0]["text"] if isinstance(item["content"], list) else item["content"] for item in items]


# ---------------------------------------------------------------- a shorter conversation


@pytest.mark.agents(134)
@pytest.mark.checklist(710)
async def test_the_answer_is_the_users_messages_and_one_note():
    questions = Questions(whole(says("Asked: products. Open: 7 times 7.")))
    told = await questions.compact(instructions="Use digits.")
    assert (told["object"], told["created_at"], told["usage"]["total_tokens"]) == ("response.compaction", NOW, 12)
    *messages, note = told["output"]
    assert texts(messages) == ["Be brief.", "What is 6 times 7?", "And 7 times 7?"]
    assert [(item["role"], item["status"], item["id"][:4]) for item in messages[1:]] == [
        ("user", "completed", "msg_")
    ] * 2
    assert note["type"] == "compaction"
    assert note["id"].startswith("cmp_")
    (asked,) = questions.bench.upstream.bodies
    assert (asked["stream"], asked["store"], asked["max_output_tokens"]) == (False, False, 2048)
    assert asked["instructions"] == "Use digits."
    assert "tools" not in asked
    assert texts(asked["input"])[-1] == REQUEST
    assert len(asked["input"]) == 5
    assert await questions.bench.stored(told["id"]) is None
    assert questions.bench.sample("compactions_total", outcome="compacted") == 1


async def test_a_chain_goes_on_from_it_and_can_be_shortened_again():
    questions = Questions(whole(says("first note")), whole(says("49")), whole(says("second note")))
    told = await questions.compact()
    further = [*told["output"], {"role": "user", "content": "Thanks."}]
    await questions.bench.answer(input=further, store=False)
    shown = questions.bench.upstream.bodies[1]["input"]
    assert texts(shown)[:3] == ["Be brief.", "What is 6 times 7?", "And 7 times 7?"]
    assert "first note" in texts(shown)[3]
    assert texts(shown)[4] == "Thanks."
    again = await questions.compact(input=further)
    assert "first note" in texts(questions.bench.upstream.bodies[2]["input"])[3]
    assert [item["type"] for item in again["output"]] == ["message"] * 4 + ["compaction"]


async def test_what_is_stored_is_shortened_by_its_id():
    questions = Questions(whole(says("Paris.")), whole(says("note")))
    first = await questions.bench.answer(input="Capital of France?")
    told = await questions.compact(input=None, previous_response_id=first["id"])
    assert texts(told["output"][:1]) == ["Capital of France?"]
    assert texts(questions.bench.upstream.bodies[1]["input"]) == ["Capital of France?", "Paris.", REQUEST]


async def test_calls_that_wait_stay_behind_the_note():
    asked = [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}]
    questions = Questions(whole(says("note")))
    told = await questions.compact(input=[*CONVERSATION, *asked])
    assert [item["type"] for item in told["output"]] == ["message"] * 3 + ["compaction", "function_call"]
    assert len(questions.bench.upstream.bodies[0]["input"]) == 5


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": None}, "model"),
        ({"input": []}, "input"),
        ({"input": None}, "input"),
    ],
)
async def test_wrong_requests_ask_nobody(fields, param):
    questions = Questions()
    with pytest.raises(InvalidRequest) as refused:
        await questions.compact(**fields)
    assert refused.value.param == param
    assert questions.bench.upstream.calls == []


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"multi_agent": {"enabled": True}}, "multi_agent"),
        ({"input": [*CONVERSATION, {"type": "agent_message"}]}, f"input[{len(CONVERSATION)}].type"),
        ({"previous_response_id": "resp_tree"}, "previous_response_id"),
    ],
)
async def test_trees_of_agents_are_refused(fields, param):
    questions = Questions()
    tree = StoredResponse(
        id="resp_tree",
        principal="local",
        status="completed",
        model="m",
        created_at=1,
        snapshot=b"{}",
        items=(),
        agents=[StoredAgent(path="/root", status="completed", state=b"{}")],
    )
    await questions.bench.store.append(tree)
    for ask in (questions.compact, questions.count):
        with pytest.raises(InvalidRequest) as refused:
            await ask(**fields)
        assert (refused.value.param, refused.value.code) == (param, "unsupported_operation")
    assert questions.bench.upstream.calls == []


async def test_a_stored_conversation_without_items_is_nothing_to_compact():
    questions = Questions()
    with pytest.raises(InvalidRequest, match="nothing to compact"):
        await questions.compact(input=[{"type": "compaction_trigger"}])


@pytest.mark.parametrize("options", [{"compaction": {"mode": "off"}}, {"sealer": None}])
async def test_without_keys_or_where_it_is_off_it_is_refused(options):
    questions = Questions(**options)
    if "sealer" in options:
        questions.bench = Bench()
        questions.standalone = Standalone(
            questions.bench.engine, questions.bench.store, questions.bench.config, questions.bench.metrics,
            questions.bench.clock, CountingIds(),
        )  # fmt: skip
    with pytest.raises(InvalidRequest, match="seal_keys"):
        await questions.compact()


async def test_no_note_is_a_failure_and_its_tokens_count():
    questions = Questions(whole(Answer([call("f", "{}", "1")])))
    with pytest.raises(CompactionFailed):
        await questions.compact()
    assert questions.bench.sample("compactions_total", outcome="empty") == 1
    assert questions.bench.sample("tokens_total", model="m", kind="output") == 7


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (Reply(error=refusal()), UpstreamRefused),
        (Reply([b"no json"], event_stream=False), UpstreamError),
        (Reply([b'{"status":"failed"}'], event_stream=False), UpstreamError),
        (Reply([b"x" * 2000], event_stream=False), GatewayError),
    ],
)
async def test_a_server_that_fails_is_told_as_such(reply, error):
    questions = Questions(reply, responses={"max_upstream_json_bytes": 1000})
    with pytest.raises(error):
        await questions.compact()
    assert questions.bench.sample("compactions_total", outcome="failed") == 1


@pytest.mark.checklist(712)
async def test_notes_of_others_are_refused_and_those_of_strangers_passed_on():
    questions = Questions(whole(says("note")), whole(says("ok")))
    told = await questions.compact(principal="ada")
    with pytest.raises(InvalidRequest) as refused:
        await questions.bench.plan("bob", input=told["output"])
    assert (refused.value.code, refused.value.param) == ("invalid_encrypted_content", "input[3].encrypted_content")
    foreign = {"type": "compaction", "encrypted_content": "gAAAAAB"}
    await questions.bench.answer(input=[foreign, CONVERSATION[1]])
    assert questions.bench.upstream.bodies[1]["input"][0] == foreign


async def test_a_note_of_another_version_is_refused():
    token = OpenSealer().seal("local", "compaction", b'{"version":2}')
    with pytest.raises(InvalidRequest, match="another version"):
        await Questions().bench.plan(input=[{"type": "compaction", "encrypted_content": token}])


async def test_shutting_down_ends_a_question():
    accept = asyncio.Event()
    questions = Questions(Reply(accept=accept))
    task = asyncio.create_task(questions.compact())
    await settle()
    assert questions.standalone.cut_off() == 1
    with pytest.raises(GatewayError, match="shutting down"):
        await task
    assert questions.standalone.cut_off() == 0


# ---------------------------------------------------------------- how long one is


class CountingDialect:
    """A server that can be asked."""

    name = "vllm"

    def adapt(self, body):
        return body

    def ask_tokens(self, body):
        from gateway.ports import TokenQuestion

        return TokenQuestion(target="/tokenize", body={"asked": body["input"]})


class Told:
    def __init__(self, status, body):
        self.status = status
        self.headers = ()
        self.pieces = [body, b""]
        self.closed = False

    async def read(self):
        return self.pieces.pop(0)

    async def close(self):
        self.closed = True


def counting(status, body, **options):
    questions = Questions(**options)
    upstream = questions.bench.upstream
    upstream.dialect = CountingDialect()
    told = Told(status, body)

    async def relay(relayed):
        upstream.calls.append(relayed)
        return told

    upstream.relay = relay
    return questions, told


@pytest.mark.checklist(713)
@pytest.mark.parametrize("body", [b'{"count":17,"tokens":[]}', b'{"input_tokens":17}'])
async def test_the_server_counts(body):
    questions, told = counting(200, body)
    assert await questions.count() == {"object": "response.input_tokens", "input_tokens": 17}
    assert told.closed
    (asked,) = questions.bench.upstream.calls
    assert asked.target == "/tokenize"
    assert len(json.loads(asked.body)["asked"]) == 4


@pytest.mark.parametrize(
    ("status", "body"), [(404, b"{}"), (400, b'{"error":{}}'), (200, b"[]"), (200, b"no"), (200, b'{"count":"9"}')]
)
async def test_where_it_cannot_the_number_is_a_guess(status, body):
    questions, told = counting(status, body)
    guessed = await questions.count()
    assert guessed["estimated"] is True
    assert 20 < guessed["input_tokens"] < 60
    assert told.closed


async def test_what_tools_of_the_gateway_add_is_not_counted():
    questions, _ = counting(200, b'{"count":17}', tools=ScriptedTools())
    told = {"object": "response.input_tokens", "input_tokens": 17, "estimated": True}
    assert await questions.count(tools=[MCP]) == told


async def test_a_conversation_is_counted_and_shortened_and_not_held():
    questions = Questions(whole(says("note")))
    items = [{"type": "message", **item} if "type" not in item else item for item in CONVERSATION]
    made = json.loads(await questions.bench.engine.conversations.create("local", {"items": items}))
    plain = await questions.count()
    asked = {"conversation": made["id"], "input": "Thanks."}
    assert (await questions.count(**asked))["input_tokens"] > plain["input_tokens"]
    told = await questions.compact(**asked)
    assert texts(told["output"][:-1]) == ["Be brief.", "What is 6 times 7?", "And 7 times 7?", "Thanks."]
    kept = json.loads(await questions.bench.engine.conversations.items("local", made["id"], Page()))
    assert len(kept["data"]) == 4
    with pytest.raises(ConversationNotFound):
        await questions.count(conversation="conv_1", input="Thanks.")


async def test_a_server_of_no_known_kind_is_not_asked():
    questions = Questions()
    assert (await questions.count())["estimated"] is True
    more = await questions.count(instructions="x" * 400)
    assert more["input_tokens"] - (await questions.count())["input_tokens"] == 100


async def test_a_server_that_is_down_is_an_error():
    questions, _ = counting(500, b"")
    with pytest.raises(UpstreamError, match="500"):
        await questions.count()


async def test_the_window_is_counted_not_what_it_replaced():
    questions = Questions(whole(says("n")))
    told = await questions.compact(input=[*CONVERSATION[:2], {"role": "assistant", "content": "long " * 500}])
    replayed = [*CONVERSATION[:2], {"role": "assistant", "content": "long " * 500}, told["output"][-1]]
    assert (await questions.count(input=replayed))["input_tokens"] < 200
