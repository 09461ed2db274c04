"""Conversations that responses read and add to, whatever the transport."""

import asyncio
import json

import pytest
from engine.connections import Connection, failure_of
from engine.doubles import Bench, BrokenStore, HeldStore, refusal, settle, streamed, types, whole
from harness.engine import Answer, call, says
from msgspec import structs

from gateway.config.schema import ConversationsConfig, StorageConfig
from gateway.engine.input_items import Page
from gateway.protocol.errors import (
    ConversationLocked,
    ConversationNotFound,
    InsufficientQuota,
    InvalidRequest,
    ItemNotFound,
    StorageUnavailable,
    UpstreamRefused,
)

UNKNOWN = "conv_" + "0" * 32
QUESTION = {"role": "user", "content": "?"}
SEARCH = {"type": "function", "name": "search", "parameters": {}}


class Site:
    """An engine, and one conversation in it."""

    def __init__(self, store=None, **bounds):
        self.bench = Bench(store=store)
        self.conversations = self.bench.engine.conversations
        if bounds:
            self.reconfigure(conversations=ConversationsConfig(**bounds))
        self.id = ""

    def reconfigure(self, **sections):
        self.bench.engine.reconfigure(structs.replace(self.bench.config, **sections))

    async def begin(self, *texts, **fields):
        items = [{"role": "user", "content": text} for text in texts]
        made = json.loads(await self.conversations.create("local", {"items": items, **fields}))
        self.id = made["id"]
        return made

    async def items(self, **page):
        page = Page(**{"order": "asc", "limit": 100, **page})
        return json.loads(await self.conversations.items("local", self.id, page))["data"]

    async def texts(self):
        return [text_of(item) for item in await self.items()]

    async def answer(self, *replies, **fields):
        return await self.bench.answer(*replies, conversation=self.id, **fields)

    async def stream(self, *replies, **fields):
        return await self.bench.stream(*replies, conversation=self.id, **fields)

    @property
    def sent(self):
        return [text_of(item) for item in self.bench.upstream.bodies[-1]["input"]]

    async def is_free(self):
        """Whether another request may write."""
        before = await self.texts()
        try:
            added = json.loads(await self.conversations.add("local", self.id, {"items": [QUESTION]}))
        except ConversationLocked:
            return False
        await self.conversations.remove("local", self.id, added["data"][0]["id"])
        assert await self.texts() == before
        return True


def text_of(item):
    if "content" not in item:
        return item["type"]
    return item["content"] if isinstance(item["content"], str) else item["content"][0]["text"]


def held(reply, accept):
    """The reply, accepted when the test says so."""
    reply.accept = accept
    return reply


def calls(*pairs):
    return Answer([call(name, "{}", call_id) for name, call_id in pairs])


@pytest.fixture
async def site():
    one = Site()
    await one.begin()
    return one


# ------------------------------------------------------------ turns


@pytest.mark.parametrize("store", [True, False])
async def test_a_response_reads_a_conversation_and_adds_to_it(site, store):
    answered = await site.answer(whole(says("hello Bo")), input="I am Bo", store=store)
    assert answered["conversation"] == {"id": site.id}
    assert answered["previous_response_id"] is None
    told = await site.stream(streamed(says("you are Bo")), input="who am I", store=store)
    assert {event["response"]["conversation"]["id"] for event in told if "response" in event} == {site.id}
    assert site.sent == ["I am Bo", "hello Bo", "who am I"]
    assert await site.texts() == ["I am Bo", "hello Bo", "who am I", "you are Bo"]
    assert [item["id"] for item in (await site.items())[1::2]] == [
        answered["output"][0]["id"],
        told[-1]["response"]["output"][0]["id"],
    ]
    stored = await site.bench.stored(answered["id"])
    assert (stored is not None) is store
    if store:
        assert (stored.conversation_id, [item.role for item in stored.items]) == (site.id, ["input", "output"])


async def test_the_conversation_may_be_named_by_an_object(site):
    answered = await site.bench.answer(whole(says("hi")), conversation={"id": site.id})
    assert answered["conversation"] == {"id": site.id}
    assert await site.texts() == ["hi", "hi"]


async def test_the_model_may_go_on_without_new_input(site):
    await site.conversations.add("local", site.id, {"items": [{"role": "user", "content": "tell me"}]})
    await site.answer(whole(says("this")), input=[])
    assert site.sent == ["tell me"]
    assert await site.texts() == ["tell me", "this"]


async def test_a_response_of_a_conversation_is_branched_off_by_its_id(site):
    first = await site.answer(whole(says("a1")), input="q1")
    second = await site.answer(whole(says("a2")), input="q2")
    await site.answer(whole(says("a3")), input="q3")
    branch = await site.bench.answer(whole(says("b")), input="or", previous_response_id=second["id"])
    assert site.sent == ["q1", "a1", "q2", "a2", "or"]
    assert branch["conversation"] is None
    await site.bench.answer(whole(says("c")), input="further", previous_response_id=branch["id"])
    assert site.sent == ["q1", "a1", "q2", "a2", "or", "b", "further"]
    assert len(await site.texts()) == 6
    await site.bench.engine.delete("local", first["id"])
    assert len(await site.texts()) == 6


async def test_calls_wait_for_their_outputs_over_turns(site):
    await site.answer(whole(calls(("search", "c1"))), input="find", tools=[SEARCH])
    with pytest.raises(InvalidRequest) as refused:
        await site.answer(input="well?")
    assert refused.value.code == "missing_tool_output"
    output = {"type": "function_call_output", "call_id": "c1", "output": "found"}
    await site.answer(whole(says("it is there")), input=[output])
    assert await site.texts() == ["find", "function_call", "function_call_output", "it is there"]
    with pytest.raises(InvalidRequest) as refused:
        await site.answer(input=[output])
    assert refused.value.code == "invalid_tool_output"


async def test_calls_are_answered_or_taken_out_by_hand(site):
    await site.answer(whole(calls(("search", "c1"), ("search", "c2"))), input="find", tools=[SEARCH])
    output = {"type": "function_call_output", "call_id": "c1", "output": "found"}
    await site.conversations.add("local", site.id, {"items": [output]})
    second = next(item for item in await site.items() if item.get("call_id") == "c2")
    await site.conversations.remove("local", site.id, second["id"])
    await site.answer(whole(says("fine")), input="well?")
    assert site.sent == ["find", "function_call", "function_call_output", "well?"]
    first = next(item for item in await site.items() if item["type"] == "function_call")
    await site.conversations.remove("local", site.id, first["id"])
    await site.answer(whole(says("fine")), input="again?")
    assert site.sent == ["find", "well?", "fine", "again?"]


async def test_an_approval_of_what_was_taken_out_spoils_nothing(site):
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_gone", "approve": True}
    await site.conversations.add("local", site.id, {"items": [answer, QUESTION]})
    assert (await site.answer(whole(says("fine")), input="go on"))["status"] == "completed"
    assert site.sent == ["?", "go on"]


async def test_an_item_is_there_once(site):
    await site.answer(whole(says("a")), input=[{"role": "user", "content": "q", "id": "mine"}])
    for given in (
        [{"role": "user", "content": "q", "id": "mine"}],
        [{"type": "item_reference", "id": "mine"}],
        [{"role": "user", "content": "q", "id": "new"}, {"role": "user", "content": "q", "id": "new"}],
    ):
        with pytest.raises(InvalidRequest) as refused:
            await site.answer(input=given)
        assert refused.value.code == "duplicate_item"
    for wrong in ("", "x" * 65, "a/b", 7):
        with pytest.raises(InvalidRequest) as refused:
            await site.answer(input=[{"role": "user", "content": "q", "id": wrong}])
        assert (refused.value.code, refused.value.param) == ("invalid_value", "input[0].id")
    assert await site.is_free()


async def test_an_item_of_elsewhere_is_added_by_reference(site):
    other = await site.bench.answer(whole(says("elsewhere")))
    await site.answer(whole(says("a")), input=[{"type": "item_reference", "id": other["output"][0]["id"]}])
    assert await site.texts() == ["elsewhere", "a"]


async def test_what_is_incomplete_is_added(site):
    told = await site.stream(streamed(Answer(says("cut").items, status="incomplete")), input="q")
    assert types(told)[-1] == "incomplete"
    assert await site.texts() == ["q", "cut"]


async def test_creates_without_a_conversation_claim_nothing():
    bench = Bench()
    await bench.answer(whole(says("hi")))
    assert bench.store.leases._held == {}


# ------------------------------------------------------------ one writer


@pytest.mark.checklist(405)
async def test_a_second_writer_is_refused_before_its_inference(site):
    hold = asyncio.Event()
    listener, _ = await site.bench.start(held(streamed(says("first")), hold), conversation=site.id, input="q1")
    await settle()
    for attempt in (
        site.answer(input="q2"),
        site.stream(input="q2"),
        site.conversations.add("local", site.id, {"items": [QUESTION]}),
    ):
        with pytest.raises(ConversationLocked) as refused:
            await attempt
    assert refused.value.param == "conversation"
    assert len(site.bench.upstream.calls) == 1
    assert await site.texts() == []
    hold.set()
    assert types(await listener.take_all())[-1] == "completed"
    await site.answer(whole(says("second")), input="q2")
    assert await site.texts() == ["q1", "first", "q2", "second"]


@pytest.mark.checklist(406)
async def test_a_conversation_is_free_when_its_client_learns_of_the_end(site):
    """Also of a failure: who tries again at once is not refused because of the try before."""
    ends = []

    class Looking:
        opened = False

        def write(self, batch):
            return True

        async def put(self, batch):
            self.opened = True

        async def end(self, batch):
            ends.append((json.loads(batch[-1][1])["type"], await site.is_free()))

    good = streamed(says("fine"))
    torn = streamed(says("never"))
    torn._waiting.pop()
    for reply in (good, torn):
        site.bench.upstream.replies.append(reply)
        plan = await site.bench.plan(transport="sse", stream=True, conversation=site.id, input="q")
        await site.bench.engine.stream(plan, Looking())
    assert ends == [("response.completed", True), ("response.failed", True)]
    assert await site.texts() == ["q", "fine"]


async def test_what_fails_adds_nothing_and_frees_the_conversation(site):
    with pytest.raises(UpstreamRefused):
        await site.answer(_refused())
    with pytest.raises(UpstreamRefused):
        await site.stream(_refused())
    with pytest.raises(InvalidRequest):
        await site.answer(input=[{"type": "function_call_output", "call_id": "none", "output": ""}])
    assert await site.texts() == []
    assert await site.is_free()


def _refused():
    reply = streamed(says("never"))
    reply.error = refusal()
    return reply


async def test_a_client_that_leaves_frees_the_conversation(site):
    listener, task = await site.bench.start(held(streamed(says("never")), asyncio.Event()), conversation=site.id)
    await settle()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not listener.opened
    assert await site.texts() == []
    assert await site.is_free()


async def test_a_client_that_leaves_while_the_conversation_is_claimed_frees_it(site, monkeypatch):
    """As with the real writer, which carries out what is queued for a caller that has gone."""
    claim = site.bench.store.conversations.claim

    async def claim_slowly(claimed):
        await claim(claimed)
        await asyncio.Event().wait()

    monkeypatch.setattr(site.bench.store.conversations, "claim", claim_slowly)
    task = asyncio.create_task(site.bench.plan(conversation=site.id))
    await settle()
    assert not await site.is_free()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    assert await site.is_free()


async def test_a_plan_that_is_abandoned_frees_the_conversation(site):
    plan = await site.bench.plan(conversation=site.id)
    assert not await site.is_free()
    await plan.abandon()
    assert await site.is_free()
    await (await site.bench.plan()).abandon()


async def test_a_conversation_deleted_meanwhile_takes_nothing(site):
    hold = asyncio.Event()
    listener, _ = await site.bench.start(held(streamed(says("late")), hold), conversation=site.id)
    await settle()
    await site.conversations.delete("local", site.id)
    hold.set()
    told = await listener.take_all()
    assert failure_of(told)["code"] == "conversation_not_found"
    assert await site.bench.stored(told[-1]["response"]["id"]) is None


async def test_who_loses_the_conversation_is_cut_off(site):
    """As a process is that could not renew its lease for so long that somebody else took it."""
    listener, _ = await site.bench.start(held(streamed(says("late")), asyncio.Event()), conversation=site.id)
    await settle()
    (hold,) = site.conversations._keeper._kept
    site.bench.store.leases.give_up(hold)
    await site.conversations._keeper._renew(hold)
    with pytest.raises(ConversationLocked):
        await listener.take_all()
    assert await site.texts() == []
    assert await site.is_free()


async def test_who_lost_the_conversation_before_it_began_is_cut_off(site):
    plan = await site.bench.plan(conversation=site.id)
    hold = plan.lineage.hold
    site.bench.store.leases.give_up(hold.lease)
    await site.conversations._keeper._renew(hold.lease)
    with pytest.raises(ConversationLocked):
        await site.bench.engine.answer(plan)
    assert site.bench.upstream.calls == []


async def test_a_database_that_fails_at_the_end_fails_the_response():
    site = Site(store=BrokenStore(StorageUnavailable("Full.")))
    await site.begin()
    with pytest.raises(StorageUnavailable):
        await site.answer(whole(says("lost")))
    assert site.bench.sample("storage_failures_total") == 1
    assert await site.texts() == []
    assert await site.is_free()


async def test_a_history_that_cannot_be_read_frees_the_conversation():
    site = Site(max_items=1)
    await site.begin("a", "b")
    with pytest.raises(InvalidRequest) as refused:
        await site.answer()
    assert refused.value.bound == "conversations.max_items"
    site.reconfigure(conversations=ConversationsConfig())
    await site.answer(whole(says("fine")))


@pytest.mark.parametrize(("bounds", "key"), [({"max_items": 3}, "max_items"), ({"max_bytes": 200}, "max_bytes")])
async def test_input_that_would_not_fit_is_refused_before_the_inference(bounds, key):
    site = Site(**bounds)
    await site.begin("a", "b")
    with pytest.raises(InvalidRequest) as refused:
        await site.answer(input=[{"role": "user", "content": "x" * 50}, {"role": "user", "content": "y"}])
    assert (refused.value.code, refused.value.param) == ("conversation_too_large", "input")
    assert refused.value.bound == f"conversations.{key}"
    assert site.bench.upstream.calls == []
    # What a model makes of it may pass the bound.
    await site.answer(whole(says("and more and more and more")), input="c")
    assert len(await site.texts()) == 4


async def test_an_unknown_conversation_is_not_found(site):
    for given in (UNKNOWN, "x" * 5000, "\x00"):
        with pytest.raises(ConversationNotFound) as refused:
            await site.bench.answer(conversation=given)
        assert (refused.value.status, refused.value.param) == (404, "conversation")
    assert site.bench.store.leases._held == {}


# ------------------------------------------------------------ on a connection


async def test_creates_of_a_connection_go_on_with_a_conversation():
    connection = Connection()
    site = Site()
    site.bench = connection.bench
    site.conversations = connection.engine.conversations
    await site.begin()
    warm = await connection.create(generate=False, input="be brief", conversation=site.id)
    assert types(warm) == ["created", "completed"]
    told = await connection.create(streamed(says("a1")), input="q1", conversation=site.id, store=False)
    assert site.sent == ["be brief", "q1"]
    assert await site.texts() == ["be brief", "q1", "a1"]
    reads = connection.bench.store.reads
    await connection.tell("or", told[-1]["response"]["id"])
    assert connection.sent == ["be brief", "q1", "a1", "or"]
    assert connection.bench.store.reads == reads
    assert len(await site.texts()) == 3


async def test_a_conversation_too_large_for_the_connection_is_kept_all_the_same():
    connection = Connection(max_checkpoint_bytes=100)
    site = Site()
    site.bench, site.conversations = connection.bench, connection.engine.conversations
    await site.begin("x" * 200)
    told = await connection.create(streamed(says("a")), input="q", conversation=site.id, store=False)
    assert types(told)[-1] == "completed"
    assert len(await site.texts()) == 3


# ------------------------------------------------------------ by hand


async def test_a_conversation_has_metadata(site):
    made = await site.begin("hello", metadata={"topic": "t"})
    assert made == {"id": site.id, "object": "conversation", "created_at": 1_790_000_000, "metadata": {"topic": "t"}}
    conversations = site.conversations
    assert json.loads(await conversations.retrieve("local", site.id)) == made
    changed = json.loads(await conversations.update("local", site.id, {"metadata": {"a": "b"}}))
    assert changed == {**made, "metadata": {"a": "b"}}
    assert json.loads(await conversations.update("local", site.id, {"metadata": None}))["metadata"] == {}
    gone = json.loads(await conversations.delete("local", site.id))
    assert gone == {"id": site.id, "object": "conversation.deleted", "deleted": True}
    with pytest.raises(ConversationNotFound):
        await conversations.retrieve("local", site.id)


async def test_items_are_listed_as_the_api_has_them(site):
    given = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "two", "id": "mine"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
    ]
    listed = json.loads(await site.conversations.add("local", site.id, {"items": given}))
    first, second, third = listed["data"]
    assert (listed["first_id"], listed["last_id"], listed["has_more"]) == (first["id"], third["id"], False)
    assert first == {
        "id": first["id"],
        "type": "message",
        "role": "user",
        "status": "completed",
        "content": [{"type": "input_text", "text": "one"}],
    }
    assert (second["id"], third["status"]) == ("mine", "completed")
    page = json.loads(await site.conversations.items("local", site.id, Page(limit=2)))
    assert (page["data"], page["has_more"]) == ([third, second], True)
    assert json.loads(await site.conversations.item("local", site.id, "mine")) == second
    left = json.loads(await site.conversations.remove("local", site.id, "mine"))
    assert left["object"] == "conversation"
    with pytest.raises(ItemNotFound):
        await site.conversations.item("local", site.id, "mine")


@pytest.mark.checklist(402)
@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        ({}, "invalid_value", None),
        ({"items": {}}, "invalid_type", "items"),
        ({"items": [{"role": "user", "content": "x"}] * 21}, "array_above_max_length", "items"),
        ({"items": [{"role": "user"}]}, "invalid_type", "items[0].content"),
        ({"items": [{"type": "item_reference", "id": "x"}]}, "invalid_value", "items[0].type"),
        ({"items": [{"role": "user", "content": "x", "id": "a b"}]}, "invalid_value", "items[0].id"),
        ({"items": [{"role": "user", "content": "x", "id": "a"}] * 2}, "duplicate_item", "items[1].id"),
    ],
)
async def test_items_that_cannot_be_are_refused_by_name(site, body, code, param):
    with pytest.raises(InvalidRequest) as refused:
        await site.conversations.add("local", site.id, body)
    if param is not None:
        assert (refused.value.code, refused.value.param) == (code, param)
    assert await site.texts() == []


async def test_what_one_may_keep_counts_conversations(site):
    site.reconfigure(storage=StorageConfig(max_bytes_per_principal=100, quota_revalidate_seconds=0))
    await site.conversations.add("local", site.id, {"items": [{"role": "user", "content": "x" * 100}]})
    for attempt in (
        site.conversations.create("local", {}),
        site.conversations.add("local", site.id, {"items": [{"role": "user", "content": "y"}]}),
        site.answer(store=False),
    ):
        with pytest.raises(InsufficientQuota):
            await attempt
    site.reconfigure(storage=StorageConfig())
    assert await site.is_free()


async def test_a_commit_that_is_under_way_ends_by_itself():
    site = Site(store=HeldStore())
    await site.begin()
    listener, task = await site.bench.start(streamed(says("kept")), conversation=site.id, input="q")
    await site.bench.store.reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await site.bench.store.commit()
    assert not listener.ended
