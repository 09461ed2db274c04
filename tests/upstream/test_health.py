import asyncio

import pytest

from gateway.upstream.client import HttpUpstream
from gateway.upstream.settings import UpstreamSettings


def serve_routes(answer, routes: dict[str, bytes], *headers: str):
    """Return a handler that answers GETs from a table and 404 otherwise."""

    async def serve(server, reader, writer):
        while True:
            head = await server.read_request(reader)
            reply = routes.get(head.split(b" ")[1].decode())
            writer.write(answer("404 Not Found", b"{}", *headers) if reply is None else reply)

    return serve


async def test_unknown_before_the_first_probe():
    health = HttpUpstream(UpstreamSettings()).health
    assert (health.healthy, health.checked_at, health.dialect) == (False, 0.0, "generic")


async def test_vllm_is_recognised(simulator, connect):
    upstream = await connect(simulator.url)
    health = await upstream.probe()
    assert (health.healthy, health.detail, health.dialect) == (True, "ok", "vllm")
    assert health.checked_at == 1_800_000_000.0
    assert upstream.health == health
    assert upstream.dialect.name == "vllm"


async def test_configured_dialect_is_kept(simulator, connect):
    upstream = await connect(simulator.url, dialect="generic")
    assert upstream.dialect.name == "generic"
    assert (await upstream.probe()).dialect == "generic"


@pytest.mark.parametrize(
    ("routes", "headers", "dialect"),
    [
        ({"/health": b"{}"}, ["Server: llama.cpp"], "llamacpp"),
        ({"/health": b"{}", "/props": b'{"default_generation_settings":{}}'}, [], "llamacpp"),
        ({"/health": b"{}", "/version": b'{"version":"0.32.0"}'}, [], "vllm"),
        ({"/health": b"{}", "/version": b'"0.1"', "/props": b"<html>"}, [], "generic"),
        ({"/v1/models": b'{"data":[]}'}, [], "generic"),
    ],
)
async def test_recognition(raw_server, connect, answer, routes, headers, dialect):
    table = {path: answer("200 OK", body, *headers) for path, body in routes.items()}
    upstream = await connect((await raw_server(serve_routes(answer, table))).url)
    health = await upstream.probe()
    assert (health.healthy, health.dialect) == (True, dialect)


async def test_recognition_is_asked_for_once(raw_server, connect, answer):
    server = await raw_server(serve_routes(answer, {"/health": answer("200 OK")}))
    upstream = await connect(server.url)
    await upstream.probe()
    asked = len(server.requests)
    await upstream.probe()
    assert len(server.requests) == asked + 1


async def test_another_server_at_the_same_address_is_recognised(raw_server, connect, answer):
    routes = {"/health": answer("200 OK"), "/version": answer("200 OK", b'{"version":"1"}')}
    upstream = await connect((await raw_server(serve_routes(answer, routes))).url)
    assert (await upstream.probe()).dialect == "vllm"
    routes["/health"] = answer("503 Service Unavailable")
    assert not (await upstream.probe()).healthy
    routes["/health"] = answer("200 OK", b"", "Server: llama.cpp")
    assert (await upstream.probe()).dialect == "llamacpp"


async def test_unhealthy_server_says_why(raw_server, connect, answer, unused_port):
    routes = {"/health": answer("503 Service Unavailable", b'{"error":"loading"}')}
    upstream = await connect((await raw_server(serve_routes(answer, routes))).url)
    health = await upstream.probe()
    assert (health.healthy, health.detail) == (False, "GET /health was answered with 503")
    nobody = await (await connect(f"http://127.0.0.1:{unused_port}")).probe()
    assert (nobody.healthy, nobody.detail) == (False, "The inference server cannot be reached.")


async def test_silent_server_is_unhealthy(raw_server, connect):
    async def serve(server, reader, writer):
        await reader.read()

    upstream = await connect((await raw_server(serve)).url, probe_timeout=0.1)
    health = await upstream.probe()
    assert not health.healthy
    assert "within 0.1 seconds" in health.detail


@pytest.mark.parametrize(
    "head", [b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9999\r\n\r\n" + b"x" * 9999]
)
async def test_unreadable_answer_is_unhealthy(raw_server, connect, head):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(head)

    upstream = await connect((await raw_server(serve)).url, max_json_bytes=1000)
    assert not (await upstream.probe()).healthy


async def test_probes_go_on_by_themselves(simulator, connect):
    upstream = await connect(simulator.url, probing=True, health_interval=0.02)
    async with asyncio.timeout(5):
        while not upstream.health.healthy:
            await asyncio.sleep(0.01)
    assert upstream.dialect.name == "vllm"
