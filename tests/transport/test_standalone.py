"""Questions about conversations over HTTP: the body on its way in, the answer on its way out, clients that leave."""

import asyncio
import json
from functools import partial

import pytest
from engine.doubles import Bench, CountingIds, OpenSealer, Reply, settle, whole
from harness.engine import says
from transport.asgi import Conversation

from gateway.config.schema import GatewayConfig, ServerConfig
from gateway.engine.standalone import Standalone
from gateway.transport.paths import COMPACT_PATH, INPUT_TOKENS_PATH
from gateway.transport.standalone import StandaloneEndpoint

BODY = json.dumps({"model": "m", "input": "hi"}).encode()


class Site:
    """The endpoint on an engine whose parts are scripted."""

    def __init__(self, *replies, **options):
        self.bench = bench = Bench(*replies, sealer=OpenSealer(), **options)
        standalone = Standalone(bench.engine, bench.store, bench.config, bench.metrics, bench.clock, CountingIds())
        self.endpoint = StandaloneEndpoint(standalone, bench.engine, bench.config, bench.metrics)

    def app(self, path):
        return partial(self.endpoint._serve, path, self.endpoint._answers[path])

    async def post(self, path, *body):
        conversation = Conversation(*body)
        await conversation.serve(self.app(path))
        assert self.bench.engine.active == 0
        return conversation


async def test_a_shorter_conversation_is_one_json_body():
    client = await Site(whole(says("note"))).post(COMPACT_PATH, BODY)
    assert (client.status, client.complete) == (200, True)
    assert int(client.headers["content-length"]) == len(client.body)
    assert [item["type"] for item in client.json["output"]] == ["message", "compaction"]


async def test_a_number_of_tokens_is_one_json_body():
    client = await Site().post(INPUT_TOKENS_PATH, BODY)
    assert client.json["object"] == "response.input_tokens"


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [(b"[]", 400, "invalid_json"), (b"{}", 400, "missing_required_parameter"), (b" " * 2000, 413, "request_too_large")],
)
async def test_what_is_wrong_is_told_and_counted(body, status, code):
    site = Site(server={"max_request_body_bytes": 1000})
    client = await site.post(COMPACT_PATH, body)
    assert (client.status, client.json["error"]["code"]) == (status, code)
    assert site.bench.sample("response_errors_total", code=code) == 1


async def test_what_drains_takes_no_questions():
    site = Site()
    site.bench.engine.begin_drain()
    assert (await site.post(INPUT_TOKENS_PATH, BODY)).status == 503


async def test_who_leaves_ends_the_inference():
    held = Reply([asyncio.Event()], event_stream=False)
    site = Site(held)
    client = Conversation(BODY)
    task = asyncio.create_task(client.serve(site.app(COMPACT_PATH)))
    await settle()
    client.gone.set()
    await task
    assert (client.sent, held.closed) == ([], 1)
    assert site.bench.sample("client_disconnects_total") == 1


async def test_other_bounds_hold_from_the_next_question_on():
    site = Site()
    assert (await site.post(INPUT_TOKENS_PATH, BODY)).status == 200
    site.endpoint.reconfigure(GatewayConfig(server=ServerConfig(max_request_body_bytes=10)))
    assert (await site.post(INPUT_TOKENS_PATH, BODY)).status == 413
