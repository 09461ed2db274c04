"""`POST /v1/responses`: the body on its way in, the answer on its way out, and clients that leave in between."""

import asyncio
import json

import pytest
from conformance.verdict import judge_response, judge_stream
from engine.doubles import Bench, BrokenStore, HeldStore, Reply, refusal, settle, streamed, whole
from harness.engine import says
from transport.asgi import Conversation

from gateway.app.background import build_background
from gateway.protocol.errors import StorageUnavailable
from gateway.telemetry.logs import response_id_var
from gateway.transport.background import EventReader
from gateway.transport.http import ResponsesEndpoint

HELLO = says("Hello there")


class Site:
    """The endpoint on an engine whose parts are scripted."""

    def __init__(self, *replies, **options):
        bench = self.bench = Bench(*replies, **options)
        background = build_background(
            bench.config, bench.store, bench.engine, bench.clock, bench.metrics, bench.tracing
        )
        events = EventReader(background, bench.config, bench.metrics)
        self.endpoint = ResponsesEndpoint(bench.engine, background, events, bench.config, bench.metrics)

    async def post(self, *body, **options):
        """Let the endpoint serve one request to its end."""
        conversation = Conversation(*body, **options)
        await conversation.serve(self.endpoint)
        assert self.bench.engine.active == 0
        return conversation

    def begin(self, *body, **options):
        """Let the endpoint serve one request in the background."""
        conversation = Conversation(*body, **options)
        return conversation, asyncio.create_task(conversation.serve(self.endpoint))

    @property
    def disconnects(self):
        return self.bench.sample("client_disconnects_total")


def request(**fields):
    return json.dumps({"model": "m", "input": "hi", **fields}).encode()


def error_of(conversation):
    assert conversation.complete
    return conversation.json["error"]


# ---------------------------------------------------------------- answers


async def test_a_json_answer():
    client = await Site(whole(HELLO)).post(request())
    assert (client.status, client.complete, client.left) == (200, True, False)
    assert client.headers["content-type"] == "application/json"
    assert int(client.headers["content-length"]) == len(client.body)
    assert judge_response(client.json) == []


async def test_a_stream():
    site = Site(streamed(HELLO))
    client = await site.post(request(stream=True))
    assert (client.status, client.complete, client.left) == (200, True, False)
    assert client.headers["content-type"].startswith("text/event-stream")
    assert client.headers["cache-control"] == "no-cache"
    assert judge_stream(client.body) == []
    assert site.bench.sample("responses_total", transport="sse", status="completed") == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_upstream_refuses_keeps_its_status(stream):
    client = await Site(Reply(error=refusal(429, "busy"))).post(request(stream=stream))
    assert client.status == 429
    assert error_of(client)["code"] == "busy"
    assert client.headers["content-type"] == "application/json"
    assert client.scope["state"]["failure"].code == "busy"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_breach_before_the_answer_begins_is_told_with_its_limit(stream):
    client = await Site(whole(HELLO), responses={"max_upstream_json_bytes": 10}).post(request(stream=stream))
    error = error_of(client)
    assert (client.status, client.headers["x-should-retry"]) == (502, "false")
    assert (error["resource"], error["limit"], error["param"]) == ("max_upstream_json_bytes", 10, None)


async def test_a_store_that_is_down_asks_to_come_back():
    client = await Site(whole(HELLO), store=BrokenStore(StorageUnavailable("Down."))).post(request())
    assert (client.status, client.headers["retry-after"]) == (503, "1")


async def test_a_request_beyond_the_limit_is_refused_before_it_is_read():
    site = Site(server={"max_concurrent_requests": 1})
    with site.bench.engine.admit("local"):
        client = Conversation(request())
        await client.serve(site.endpoint)
    assert (client.status, error_of(client)["code"]) == (503, "server_is_overloaded")
    assert len(client.waiting) == 1


@pytest.mark.checklist(29)
async def test_a_place_is_held_until_the_last_byte():
    site = Site(whole(HELLO))
    client = Conversation(request())
    client.reads.clear()
    serving = asyncio.create_task(client.serve(site.endpoint))
    await settle()
    assert site.bench.engine.active == 1
    client.reads.set()
    await serving
    assert site.bench.engine.active == 0


async def test_log_records_carry_the_id_of_the_response():
    seen = []

    class Upstream(Reply):
        async def read(self):
            seen.append(response_id_var.get())
            return await super().read()

    client = await Site(Upstream([json.dumps(HELLO.response).encode()], event_stream=False)).post(request())
    assert set(seen) == {client.json["id"]}


# ---------------------------------------------------------------- headers


@pytest.mark.parametrize("stream", [False, True])
async def test_tools_that_were_left_out_are_named(stream):
    tools = [{"type": "web_search"}, {"type": "file_search"}]
    reply = streamed(HELLO) if stream else whole(HELLO)
    client = await Site(reply).post(request(stream=stream, tools=tools))
    assert client.headers["x-gateway-unsupported-tools"] == "web_search, file_search"


async def test_no_tool_left_out_no_header():
    client = await Site(whole(HELLO)).post(request(tools=[{"type": "function", "name": "f"}]))
    assert "x-gateway-unsupported-tools" not in client.headers


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("x\r\nset-cookie: a=1", "xset-cookiea1"),
        ("a, b", "ab"),
        ("é😀\0\x7f\ud83d", "unnamed"),
        ("x" * 500, "x" * 64),
    ],
    ids=["header injection", "list separator", "beyond ASCII", "long"],
)
async def test_a_tools_type_cannot_write_headers(kind, shown):
    client = await Site(whole(HELLO)).post(request(tools=[{"type": kind}]))
    assert client.headers["x-gateway-unsupported-tools"] == shown


async def test_only_so_many_tools_are_named():
    client = await Site(whole(HELLO)).post(request(tools=[{"type": f"t{number}"} for number in range(100)]))
    assert client.headers["x-gateway-unsupported-tools"].split(", ") == [f"t{number}" for number in range(16)]


async def test_only_headers_the_operator_lists_are_passed_on():
    sent = [(b"x-tenant", b"caf\xe9"), (b"authorization", b"Bearer secret"), (b"cookie", b"a=1")]
    listed = Site(whole(HELLO), upstream={"forward_headers": ("X-Tenant",)})
    await listed.post(request(), headers=sent)
    assert listed.bench.upstream.calls[0].headers == {"x-tenant": "café"}
    unlisted = Site(whole(HELLO))
    await unlisted.post(request(), headers=sent)
    assert unlisted.bench.upstream.calls[0].headers == {}


# ---------------------------------------------------------------- the body


@pytest.mark.parametrize("length", [None, b"0", b"x", b"-5"])
async def test_a_body_may_come_in_pieces(length):
    body = request()
    headers = [] if length is None else [(b"content-length", length)]
    client = await Site(whole(HELLO)).post(body[:5], b"", body[5:9], body[9:], headers=headers)
    assert client.status == 200


@pytest.mark.parametrize("announced", [False, True])
async def test_a_body_of_exactly_the_limit_is_taken(announced):
    body = request()
    headers = [(b"content-length", b"%d" % len(body))] if announced else []
    client = await Site(whole(HELLO), server={"max_request_body_bytes": len(body)}).post(body, headers=headers)
    assert client.status == 200


@pytest.mark.parametrize("announced", [False, True])
async def test_a_body_one_byte_larger_is_refused_once_it_was_read(announced):
    body = request()
    headers = [(b"content-length", b"%d" % len(body))] if announced else []
    site = Site(server={"max_request_body_bytes": len(body) - 1})
    client = await site.post(body[:10], body[10:20], body[20:], headers=headers)
    assert (client.status, error_of(client)["code"]) == (413, "request_too_large")
    assert "max_request_body_bytes" in error_of(client)["message"]
    assert not client.waiting
    assert site.bench.upstream.calls == []


async def test_a_body_without_end_is_not_read_for_ever():
    client = await Site(server={"max_request_body_bytes": 100}).post(*[b"x" * 50] * 1000)
    assert client.status == 413
    assert len(client.waiting) > 900


@pytest.mark.parametrize(
    ("chunks", "status", "code"),
    [([b'{"model"'], 408, "request_timeout"), ([b"x" * 200], 413, "request_too_large")],
    ids=["slow", "slow and too large"],
)
async def test_a_body_that_does_not_arrive_is_not_waited_for(chunks, status, code):
    limits = {"request_body_timeout_seconds": 0.02, "max_request_body_bytes": 100}
    client = await Site(server=limits).post(*chunks, asyncio.Event(), b"}")
    assert (client.status, error_of(client)["code"]) == (status, code)


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": "m"}'])
async def test_a_body_that_is_no_request_is_refused(body):
    client = await Site().post(body)
    assert client.status == 400
    assert error_of(client)["type"] == "invalid_request_error"


# ---------------------------------------------------------------- clients that leave


async def test_a_client_that_leaves_while_it_sends():
    site = Site()
    client = await site.post(b'{"model"', None)
    assert (client.sent, client.left, site.disconnects) == ([], True, 1)
    assert site.bench.upstream.calls == []


@pytest.mark.parametrize(
    "reply",
    [
        lambda: Reply(accept=asyncio.Event()),
        lambda: Reply([b"{", asyncio.Event()], event_stream=False),
        lambda: Reply([HELLO.frames()[0], asyncio.Event()]),
    ],
    ids=["before the upstream accepts", "in its body", "in its stream"],
)
async def test_a_client_that_leaves_while_it_waits_for_json(reply):
    made = reply()
    site = Site(made)
    client, serving = site.begin(request())
    await settle()
    assert len(site.bench.upstream.calls) == 1
    client.gone.set()
    await serving
    assert (client.sent, client.left, site.disconnects) == ([], True, 1)
    assert made.closed == (0 if made.accept else 1)
    assert site.bench.engine.active == 0


@pytest.mark.checklist(26)
async def test_a_client_that_leaves_during_the_commit_finds_its_response():
    store = HeldStore()
    site = Site(whole(HELLO), store=store)
    client, serving = site.begin(request())
    await store.reached.wait()
    client.gone.set()
    await serving
    assert client.left
    await store.commit()
    assert json.loads(await site.bench.engine.retrieve("local", store.queued[0].id))["status"] == "completed"


async def test_a_client_that_leaves_with_its_answer_has_not_left_early():
    site = Site(whole(HELLO))
    client, serving = site.begin(request())
    client.reads.clear()
    await settle()
    assert client.status == 200
    client.gone.set()
    await serving
    assert (client.complete, client.left, site.disconnects) == (True, False, 0)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_server_that_stops_leaves_nothing_running(stream):
    reply = Reply([HELLO.frames()[0], asyncio.Event()])
    site = Site(reply)
    _, serving = site.begin(request(stream=stream))
    await settle()
    serving.cancel()
    await asyncio.wait([serving])
    assert (serving.cancelled(), reply.closed, site.bench.engine.active) == (True, 1, 0)
