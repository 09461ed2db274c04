"""WebSockets of a gateway process: who gets one, and what becomes of it when the process ends."""

import asyncio
import signal
from functools import partial

import msgspec
import pytest
from transport.socket_site import Client, close_frame, upgrade
from uvicorn.server import ServerState

from gateway.app import Gateway, build_parts
from gateway.config.schema import GatewayConfig, WebSocketConfig
from gateway.server import GatewayServer
from gateway.storage.memory import MemoryStore


async def connect(running, head):
    """Send the head of an upgrade; returns the client, and the status and headers of the answer."""
    client = Client(*await asyncio.open_connection(*running.address))
    await client.send(head)
    status, headers = await client.head()
    return client, status, headers


async def denial(running, head):
    """Be refused; returns the status, the headers and the error."""
    client, status, headers = await connect(running, head)
    body = await client.reader.readexactly(int(headers["content-length"]))
    client.end()
    assert headers["content-type"] == "application/json"
    return status, headers, msgspec.json.decode(body)["error"]


def access_lines(errors):
    lines = [msgspec.json.decode(line) for line in errors.splitlines()]
    return [line for line in lines if line["logger"] == "gateway.access"]


# ---------------------------------------------------------------- the upgrade


async def test_an_upgrade_is_accepted_under_the_callers_id(launch):
    running = await launch()
    client, status, headers = await connect(running, upgrade("X-Request-Id: mine"))
    assert (status, headers["x-request-id"]) == (101, "mine")
    await client.send(close_frame(1000))
    assert await client.close_code() == 1000
    assert await client.rest() == b""
    client.end()
    running.signal(signal.SIGTERM)
    code, errors = await running.end()
    (line,) = access_lines(errors)
    assert (line["request_id"], line["method"], line["path"], line["status"]) == ("mine", "GET", "/v1/responses", 101)
    assert code == 0


@pytest.mark.parametrize("path", [b"/v1/models", b"/v1/responses/resp_1", b"/nowhere", b"/livez", b"http://localhost"])
async def test_only_one_path_takes_websockets(launch, path):
    running = await launch()
    status, headers, error = await denial(running, upgrade().replace(b"/v1/responses?a=b", path))
    assert (status, error["code"]) == (404, "route_not_found")
    assert headers["x-request-id"].startswith("req_")


async def test_an_upgrade_is_asked_for_in_vain_where_websockets_are_off(launch):
    running = await launch(websocket={"enabled": False})
    status, _, error = await denial(running, upgrade())
    assert (status, error["code"]) == (426, "upgrade_required")


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ((b"localhost", b"evil.example"), "host_not_allowed"),
        ((b"\r\n\r\n", b"\r\nOrigin: https://evil.example\r\n\r\n"), "origin_not_allowed"),
    ],
)
async def test_strangers_are_kept_out(launch, wrong, code):
    running = await launch()
    status, _, error = await denial(running, upgrade().replace(*wrong))
    assert (status, error["code"]) == (403, code)


async def test_more_connections_than_allowed_are_refused_an_upgrade_too(launch):
    running = await launch(server={"port": 0, "max_connections": 1})
    first, status, _ = await connect(running, upgrade())
    assert status == 101
    status, headers, error = await denial(running, upgrade())
    assert (status, error["code"], headers["retry-after"]) == (503, "server_is_overloaded", "1")
    first.end()


async def test_a_message_above_the_limit_is_refused_by_its_key(launch):
    running = await launch(websocket={"max_message_bytes": 1024})
    client, _, _ = await connect(running, upgrade())
    await client.send(b"\x81\xfe\x04\x01")
    await client.too_large()
    assert await client.close_code() == 1009
    client.end()


async def test_a_reload_reaches_the_sockets_that_begin_after_it():
    def configure(seconds):
        return GatewayConfig(websocket=WebSocketConfig(ping_interval_seconds=seconds))

    gateway = Gateway(build_parts(configure(11.0), store=MemoryStore()))
    config = GatewayServer(gateway, lambda: None).config
    config.load()
    begin = partial(config.ws_protocol_class, config=config, server_state=ServerState(), app_state={})
    before = begin()
    gateway.reload(configure(12.0))
    assert (before.ping_interval, begin().ping_interval) == (11.0, 12.0)


# ---------------------------------------------------------------- the end


@pytest.mark.parametrize("silent", [False, True])
async def test_idle_clients_are_told_and_none_holds_up_the_end(launch, silent):
    # Only the grace of the end is short enough for this test to end in time.
    patience = {"close_timeout_seconds": 1000.0, "handshake_timeout_seconds": 1000.0}
    running = await launch(server={"port": 0, "drain_seconds": 1000.0, "close_grace_seconds": 0.2}, websocket=patience)
    client, _, _ = await connect(running, upgrade())
    running.signal(signal.SIGTERM)
    assert await client.close_code() == 1001
    if not silent:
        await client.send(close_frame(1001))
    assert await client.rest() == b""
    client.end()
    code, errors = await running.end()
    assert code == 0
    assert "Traceback" not in errors
    assert [line["status"] for line in access_lines(errors)] == [101]
