import asyncio
import json
import re
from pathlib import Path

import aiohttp
import pytest

from gateway.upstream.simulated import ScriptedReply, serve_simulator
from gateway.upstream.simulated.personas import PERSONAS

ROOT = Path(__file__).parents[3]


async def fetch(url: str, method: str = "GET") -> tuple[int, bytes]:
    async with aiohttp.ClientSession() as session, session.request(method, url) as response:
        return response.status, await response.read()


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def test_small_routes(simulator):
    assert await fetch(f"{simulator.url}/health") == (200, b"")
    assert json.loads((await fetch(f"{simulator.url}/version"))[1])["version"].startswith("0.32.0")
    assert (await fetch(f"{simulator.url}/nowhere"))[0] == 404
    assert (await fetch(f"{simulator.url}/v1/responses"))[0] == 405
    assert (await fetch(f"{simulator.url}/health", "DELETE"))[0] == 405


async def test_every_model_is_listed_and_documented(simulator):
    models = json.loads((await fetch(f"{simulator.url}/v1/models"))[1])["data"]
    listed = {model["id"] for model in models}
    assert listed == {persona.name for persona in PERSONAS} | {"fixture-8000-1"}
    page = (ROOT / "docs/reference/simulator.md").read_text()
    documented = set(re.findall(r"^\| `(sim[a-z0-9-]*)`", page, re.MULTILINE))
    assert documented == {persona.name for persona in PERSONAS}


@pytest.mark.parametrize(
    ("more", "status", "param"),
    [
        ({"model": "nope"}, 404, "model"),
        ({"input": []}, 400, None),
        ({"input": 5}, 400, "body.input"),
        ({"input": "y " * 131_073}, 400, "input_tokens"),
        ({"include": ["web_search_call.results"]}, 400, "body.include"),
        ({"service_tier": "fast"}, 400, "body.service_tier"),
        ({"prompt": {"id": "p"}}, 400, "prompt"),
        ({"previous_response_id": "resp_1"}, 404, "response_id"),
        ({"background": True}, 400, "background"),
        ({"max_output_tokens": 0}, 400, "max_tokens"),
        ({"tool_choice": "required"}, 400, "tool_choice"),
        ({"tools": [{"type": "function", "name": "f"}], "tool_choice": {"name": "g"}}, 400, "tool_choice"),
        ({"input": [{"type": "reasoning", "summary": [], "encrypted_content": "blob"}]}, 400, None),
    ],
)
async def test_refuses_what_vllm_refuses(create, more, status, param):
    got, body = await create(more.pop("model", "sim"), **more)
    assert got == status
    assert (body["error"]["param"], body["error"]["code"]) == (param, status)


@pytest.mark.parametrize("body", [b"{", b"[]", b"\xff", b"[" * 100_000])
async def test_refuses_what_is_no_json_object(simulator, body):
    async with aiohttp.ClientSession() as session, session.post(f"{simulator.url}/v1/responses", data=body) as response:
        assert response.status == 400


async def test_refuses_what_is_too_large_in_words(simulator, monkeypatch):
    monkeypatch.setattr("gateway.upstream.simulated.app.MAX_BODY_BYTES", 100_000)
    url = f"{simulator.url}/v1/responses"
    async with aiohttp.ClientSession() as session, session.post(url, data=b"x" * 500_000) as response:
        assert response.status == 413
        assert (await response.json())["error"]["code"] == 413
    assert not simulator.simulator.received


async def test_request_is_read_whole_before_the_answer(simulator):
    body = json.dumps({"model": "sim-error-400", "input": "hi"}).encode()
    host, port = simulator.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"POST /v1/responses HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body))
    writer.write(body[:10])
    early = asyncio.create_task(reader.read(1))
    await asyncio.sleep(0.2)
    assert not early.done()
    writer.write(body[10:])
    assert await early == b"H"
    assert (await reader.readline()).startswith(b"TTP/1.1 400")
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize("streamed", [False, True])
async def test_generation_ends_when_the_client_leaves(simulator, ask, streamed, caplog):
    caplog.set_level("INFO", "gateway.simulator")
    asking = asyncio.create_task(_hold(ask, streamed))
    await until(lambda: simulator.simulator.active == 1)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    await until(lambda: simulator.simulator.active == 0)
    assert simulator.simulator.aborted == 1
    assert ["aborted" in record.message for record in caplog.records] == [True]


async def _hold(ask, streamed: bool) -> None:
    async with ask("sim-stall", stream=streamed) as response:
        await response.read()


async def test_one_line_per_request(create, caplog):
    caplog.set_level("INFO", "gateway.simulator")
    await create("sim", input="a secret question")
    (record,) = caplog.records
    assert "sim json" in record.message
    assert "secret" not in record.message


@pytest.mark.parametrize("model", ["sim-cut", "sim-cut-json"])
@pytest.mark.parametrize("streamed", [False, True])
async def test_cut(ask, model, streamed):
    async with ask(model, stream=streamed) as response:
        assert response.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_requests_are_remembered(simulator, create):
    await create("sim", input="remember me")
    (received,) = simulator.simulator.received
    assert json.loads(received.body)["input"] == "remember me"
    assert received.headers["content-type"] == "application/json"


async def test_itl_paces_the_tokens(parse_events):
    async with serve_simulator(itl=0.02) as served, aiohttp.ClientSession() as session:
        started = asyncio.get_running_loop().time()
        body = {"model": "sim", "input": "hi", "stream": True}
        async with session.post(f"{served.url}/v1/responses", json=body) as response:
            events = parse_events(await response.read())
        tokens = sum("delta" in event for event in events)
        assert asyncio.get_running_loop().time() - started >= 0.02 * tokens


async def test_script_comes_before_the_models():
    script = [
        ScriptedReply(match="special", status=418, headers={"X-Own": "1"}, json={"a": 1}),
        ScriptedReply(sse=[(0, "data: one\n\n"), (0.01, "data: two\n\n")]),
        ScriptedReply(sse=[(0, "data: half")], cut=True),
        ScriptedReply(json={"long": "body"}, cut=True),
    ]
    async with serve_simulator(script=script) as served, aiohttp.ClientSession() as session:
        url = f"{served.url}/v1/responses"
        async with session.post(url, json={"model": "sim", "input": "plain"}) as response:
            assert (response.content_type, await response.read()) == (
                "text/event-stream",
                b"data: one\n\ndata: two\n\n",
            )
        async with session.post(url, json={"model": "sim", "input": "special"}) as response:
            assert (response.status, response.headers["X-Own"], await response.json()) == (418, "1", {"a": 1})
        for _ in range(2):
            async with session.post(url, json={"model": "sim", "input": "special"}) as response:
                with pytest.raises(aiohttp.ClientPayloadError):
                    await response.read()
        async with session.post(url, json={"model": "sim", "input": "special"}) as response:
            assert (await response.json())["model"] == "sim"


async def test_leaving_the_block_ends_running_answers():
    async with aiohttp.ClientSession() as session:
        async with serve_simulator() as served:
            body = {"model": "sim-stall", "input": "hi", "stream": True}
            response = await session.post(f"{served.url}/v1/responses", json=body)
        with pytest.raises(aiohttp.ClientPayloadError):
            await response.read()


async def test_taken_port(simulator):
    with pytest.raises(OSError, match="in use"):
        async with serve_simulator(port=int(simulator.url.rpartition(":")[2])):
            pass
