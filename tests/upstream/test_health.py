import asyncio

import pytest

from gateway.upstream.client import HttpUpstream
from gateway.upstream.health import HealthMonitor
from gateway.upstream.settings import UpstreamSettings
from gateway.upstream.tasks import end_task


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


@pytest.mark.parametrize("path", ["/version", "/props"])
async def test_answers_nested_without_end_leave_the_server_unrecognised(raw_server, connect, answer, path):
    routes = {"/health": answer("200 OK"), path: answer("200 OK", b"[" * 100_000)}
    upstream = await connect((await raw_server(serve_routes(answer, routes))).url)
    health = await upstream.probe()
    assert (health.healthy, health.dialect) == (True, "generic")


async def test_the_watch_outlives_faults_of_its_own(simulator, connect, monkeypatch, caplog):
    upstream = await connect(simulator.url, health_interval=0.02)
    ask = upstream._monitor._ask
    faults = [RuntimeError("one"), RecursionError("two")]

    async def fail_at_first():
        if faults:
            raise faults.pop()
        return await ask()

    monkeypatch.setattr(upstream._monitor, "_ask", fail_at_first)
    health = await upstream.probe()
    assert (health.healthy, health.detail) == (False, "The probe met an unexpected fault; see the log.")
    watch = asyncio.create_task(HealthMonitor.watch(upstream._monitor))
    async with asyncio.timeout(20):
        while not upstream.health.healthy:
            await asyncio.sleep(0.01)
    await end_task(watch)
    assert caplog.text.count("Traceback") == 2


async def test_closing_does_not_wait_for_a_server_that_never_answers(raw_server, connect):
    async def serve(server, reader, writer):
        await reader.read()

    upstream = await connect((await raw_server(serve)).url, probing=True, probe_timeout=0.05, health_interval=0.001)
    for _ in range(20):
        await asyncio.sleep(0.017)
        async with asyncio.timeout(20):
            await upstream.close()
        await upstream.start()


async def test_probe_after_and_during_the_end_says_so(raw_server, connect):
    asked = asyncio.Event()

    async def serve(server, reader, writer):
        await server.read_request(reader)
        asked.set()
        await reader.read()

    upstream = await connect((await raw_server(serve)).url)
    probe = asyncio.create_task(upstream.probe())
    await asyncio.wait_for(asked.wait(), 20)
    await upstream.close()
    assert (await probe).detail == "The inference server closed the connection before it answered."
    assert (await upstream.probe()).detail == "The client of the inference server is not started."


async def test_probes_go_on_by_themselves(simulator, connect):
    upstream = await connect(simulator.url, probing=True, health_interval=0.02)
    async with asyncio.timeout(20):
        while not upstream.health.healthy:
            await asyncio.sleep(0.01)
    assert upstream.dialect.name == "vllm"
