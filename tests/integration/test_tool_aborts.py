"""Clients that leave at any moment of a response with tools: nothing is left of it."""

import asyncio
import json
import random
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from harness.client import client, create, open_create
from harness.descriptors import find_sockets, list_descriptors
from harness.engine import Answer, call, says
from harness.upstream import Reply, Request, Upstream
from harness.websocket import WebSocket
from integration.embedded import EmbeddedGateway
from tools.mcp.bench import RawServer, event, open_stream, reply

from gateway.config.loader import load_config

Json = dict[str, Any]
SLOW = 0.02
LONGEST_STAY = 10 * SLOW
CLIENTS = 6
LEAVES = 12
OUTCOMES = ("completed", "cancelled")
QUIET = {"active_responses": 0.0, "mcp_sessions": 0.0, "calls": 0.0}


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """One of its own: what other tests hold open is not counted."""
    with Upstream() as running:
        yield running


@pytest.fixture(scope="module")
def raw() -> Iterator[RawServer]:
    """A server that takes its time for everything, and answers calls in one piece or as a stream."""
    server, ready = RawServer(), threading.Event()
    over = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def begin(message: Json, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(SLOW)
        info = {"name": "slow", "version": "1"}
        await reply(writer, message, {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info})

    async def list_tools(message: Json, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(SLOW)
        await reply(writer, message, {"tools": [{"name": "say", "inputSchema": {"type": "object"}}]})

    async def answer(message: Json, writer: asyncio.StreamWriter) -> None:
        result = {"content": [{"type": "text", "text": "x"}]}
        if not message["params"]["arguments"]:
            await asyncio.sleep(SLOW)
            await reply(writer, message, result)
            return
        await open_stream(writer)
        for _ in range(4):
            told = {"progressToken": 1, "progress": 1}
            writer.write(event({"jsonrpc": "2.0", "method": "notifications/progress", "params": told}))
            await writer.drain()
            await asyncio.sleep(SLOW / 4)
        writer.write(event({"jsonrpc": "2.0", "id": message["id"], "result": result}))
        writer.close()

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        server.answers.update({"initialize": begin, "tools/list": list_tools, "tools/call": answer})
        await server.start()
        ready.set()
        await over.wait()
        await server.close()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    yield server
    loops[0].call_soon_threadsafe(over.set)
    thread.join()


@pytest.fixture(scope="module")
def gateway(upstream: Upstream, raw: RawServer, tmp_path_factory: Any) -> Iterator[EmbeddedGateway]:
    own = {
        "upstream.url": upstream.url,
        "storage.url": f"sqlite:///{tmp_path_factory.mktemp('leaving')}/gateway.db",
        "server.port": "0",
        "admin.enabled": "false",
        "mcp.allow_private_addresses": "true",
        "mcp.max_idle_sessions": "0",
        "mcp.servers.docs.url": raw.url,
    }
    config = load_config(None, {}, [f"{name}={value}" for name, value in own.items()]).config
    with EmbeddedGateway(config) as running:
        yield running


async def two_rounds(request: Request, answer: Reply) -> None:
    """Call twice, then once, then speak."""
    done = sum(item["type"] == "function_call_output" for item in request.body["input"])
    await asyncio.sleep(SLOW)
    calls = [call("mcp__docs__say", arguments, f"call_{done}{arguments}") for arguments in ("{}", '{"a":1}')]
    script = {0: Answer(calls), 2: Answer(calls[:1])}.get(done, says("Done."))
    await script(request, answer)


def leave(gateway: EmbeddedGateway, model: str, way: str, stay: float, tool: Json, conversation: str | None) -> None:
    fields = {"tools": [tool], **({} if conversation is None else {"conversation": conversation})}
    if way == "websocket":
        with WebSocket(gateway.port) as connection:
            connection.create(model, **fields)
            time.sleep(stay)
            connection.leave()
        return
    body = {"model": model, "input": "hi", "stream": way == "sse", **fields}
    with open_create(gateway.port, body) as connection:
        time.sleep(stay)
        if stay > LONGEST_STAY / 2:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")  # reset it


def count(gateway: EmbeddedGateway, upstream: Upstream) -> Json:
    """Return all that a response with tools may hold."""
    to_upstream = find_sockets(upstream.port)
    gauges = ("active_responses", "tool_work_running", "tool_work_waiting", "mcp_sessions", "storage_queue_entries")
    return {
        "tasks": gateway.do(lambda: len(asyncio.all_tasks())),
        # Both ends, but for the connections to the inference server, which are kept for the next calls.
        "sockets": len([name for name in list_descriptors() if "socket" in name and name not in to_upstream]),
        "calls": upstream.open_calls,
        **{name: gateway.sample(name) for name in gauges},
    }


def test_leaving_at_any_moment_leaves_nothing(gateway: EmbeddedGateway, upstream: Upstream, raw: RawServer) -> None:
    model = upstream.script("leaving", two_rounds)
    of_request = {"type": "mcp", "server_label": "docs", "server_url": raw.url, "require_approval": "never"}
    of_gateway = {"type": "mcp", "server_label": "docs", "require_approval": "never"}
    with client(gateway.port) as caller:
        made = [caller.call("POST", "/v1/conversations", b"{}").json["id"] for _ in range(CLIENTS)]
    # Whatever is opened once and kept is there.
    assert create(gateway.port, {"model": model, "input": "hi", "tools": [of_gateway]}).json["status"] == "completed"
    wait_until_idle(gateway, upstream)
    before = count(gateway, upstream)

    def leave_often(number: int) -> None:
        chance = random.Random(number)
        for turn in range(LEAVES):
            way = ("json", "sse", "websocket")[turn % 3]
            tool = of_request if chance.random() < 0.5 else of_gateway
            leave(gateway, model, way, chance.uniform(0, LONGEST_STAY), tool, chance.choice([None, made[number]]))

    with ThreadPoolExecutor(CLIENTS) as clients:
        list(clients.map(leave_often, range(CLIENTS)))
    # On a slow machine no call may have begun in so short a time.
    chance, deadline = random.Random(CLIENTS), time.monotonic() + 30
    while not all(read_outcomes(gateway).values()):
        assert time.monotonic() < deadline, read_outcomes(gateway)
        leave(gateway, model, "sse", chance.uniform(0, 5 * LONGEST_STAY), of_gateway, None)
    wait_until_idle(gateway, upstream, before)
    with client(gateway.port) as caller:
        body = json.dumps({"items": [{"role": "user", "content": "free"}]}).encode()
        freed = [caller.call("POST", f"/v1/conversations/{one}/items", body).status for one in made]
    assert freed == [200] * CLIENTS


def read_outcomes(gateway: EmbeddedGateway) -> dict[str, float]:
    return {outcome: gateway.sample("tool_calls_total", kind="mcp_call", outcome=outcome) for outcome in OUTCOMES}


def wait_until_idle(gateway: EmbeddedGateway, upstream: Upstream, most: Mapping[str, float] = QUIET) -> None:
    """Wait until no more is held than that."""
    deadline, above = time.monotonic() + 30, {"anything": 1.0}
    while above:
        assert time.monotonic() < deadline, above
        time.sleep(0.05)
        held = count(gateway, upstream)
        above = {name: held[name] for name in most if held[name] > most[name]}
