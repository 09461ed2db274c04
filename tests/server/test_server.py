import asyncio
import signal
import socket

import httpx
import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from server.conftest import PATIENCE

from gateway.app import StartError
from gateway.config.schema import AdminConfig, GatewayConfig, ServerConfig
from gateway.server import bind_listeners


def config(host="127.0.0.1", port=0, bind="127.0.0.1:0", **server):
    return GatewayConfig(server=ServerConfig(host=host, port=port, **server), admin=AdminConfig(bind=bind))


async def status(url, method="GET"):
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        return await client.request(method, url)


async def wait_until_draining(running):
    while (await status(f"{running.url}/readyz")).status_code != 503:
        await asyncio.sleep(0.02)


def messages(errors):
    """The messages of warnings and worse."""
    lines = [msgspec.json.decode(line) for line in errors.splitlines()]
    return [line["message"] for line in lines if line["level"] not in {"info", "debug"}]


# ---------------------------------------------------------------- sockets


@pytest.mark.checklist(8)
def test_accepted_sockets_inherit_the_options():
    listeners = bind_listeners(config(socket_send_buffer_bytes=65536))
    listeners.public.listen()
    with socket.create_connection(listeners.public.getsockname()) as client:
        accepted, _ = listeners.public.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
            # Linux reports twice what was asked for.
            assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) == 2 * 65536
        client.close()
    listeners.close()


@pytest.mark.parametrize("key", ["[server] host and port", "[admin] bind"])
def test_an_address_in_use_is_named_with_its_key(key):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        asked = config(port=port) if key.startswith("[server]") else config(bind=f"127.0.0.1:{port}")
        with pytest.raises(StartError, match=f"address 127.0.0.1:{port} is in use") as caught:
            bind_listeners(asked)
    assert key in str(caught.value)


def test_a_host_that_is_not_ours_is_named():
    with pytest.raises(StartError, match=r"no-such-host\.invalid .*\[server\] host"):
        bind_listeners(config(host="no-such-host.invalid"))


def test_without_an_admin_listener_there_is_one_socket():
    listeners = bind_listeners(GatewayConfig(server=ServerConfig(port=0), admin=AdminConfig(enabled=False)))
    assert listeners.admin is None
    listeners.close()


# ---------------------------------------------------------------- start


async def test_the_start_line_names_addresses_upstream_and_database(launch):
    running = await launch()
    assert "upstream http://127.0.0.1:8000, database sqlite:///responses.db" in running.start_line
    answer = await status(f"{running.url}/livez")
    assert (answer.status_code, answer.json()) == (200, {"live": True})
    assert "server" not in answer.headers
    assert "date" in answer.headers


async def test_the_admin_listener_serves_metrics(launch):
    running = await launch()
    await status(f"{running.url}/livez")
    answer = await status(f"{running.admin_url}/metrics")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    labels = {"route": "/livez", "method": "GET", "status": "200"}
    assert any(sample.labels == labels and sample.value == 1 for sample in families["gateway_requests"].samples)
    assert (await status(f"{running.url}/metrics")).status_code == 404


async def test_a_port_in_use_ends_the_start_without_a_traceback(launch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, errors = await (await launch(wait=False, server={"port": port})).end()
    assert code == 1
    assert errors.startswith(f"error: address 127.0.0.1:{port} is in use;")
    assert "Traceback" not in errors


async def test_an_unmigrated_database_ends_the_start_with_the_command(launch, tmp_path):
    code, errors = await (await launch(wait=False, database=f"sqlite:///{tmp_path}/new.db")).end()
    assert code == 1
    assert "gateway db upgrade" in errors
    assert "Traceback" not in errors


async def test_it_starts_without_its_upstream(launch):
    running = await launch(probes=99)
    assert (await status(f"{running.url}/readyz")).status_code == 503
    assert (await status(f"{running.url}/livez")).status_code == 200


async def test_waiting_for_the_upstream_reports_and_starts(launch):
    running = await launch(probes=2, wait_upstream=30)
    assert (await status(f"{running.url}/readyz")).status_code == 200
    running.signal(signal.SIGTERM)
    code, errors = await running.end()
    assert code == 0
    assert "Waiting for the inference server (default: 1 to go)" in errors


async def test_an_upstream_that_never_comes_ends_the_start(launch):
    code, errors = await (await launch(wait=False, probes=99, wait_upstream=0)).end()
    assert code == 1
    assert "error: no inference server became healthy within 0 seconds (default: 98 to go)" in errors


async def test_a_signal_ends_the_waiting(launch):
    running = await launch(wait=False, probes=99, wait_upstream=60)
    while b"Waiting" not in await running.process.stderr.readline():
        pass
    running.signal(signal.SIGTERM)
    code, _ = await running.end()
    assert code == 0


# ---------------------------------------------------------------- signals


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_gateway_exits_with_0(launch, number):
    running = await launch()
    running.signal(number)
    code, errors = await running.end()
    assert code == 0
    assert "Traceback" not in errors


async def test_a_database_that_does_not_answer_cannot_hold_up_the_end_for_ever(launch):
    running = await launch(holds_end=True, server={"port": 0, "end_seconds": 0.2})
    running.signal(signal.SIGTERM)
    code, errors = await running.end()
    assert code == 1
    assert any("longer than 0.2 seconds ([server] end_seconds)" in message for message in messages(errors))


async def test_a_drain_lets_streams_finish_and_refuses_new_ones(launch):
    running = await launch()
    async with running.stream(chunks=15, interval=0, more="holds=1") as lines:
        running.signal(signal.SIGTERM)
        await wait_until_draining(running)
        alive = await status(f"{running.url}/livez")
        refused = await status(f"{running.url}/v1/responses?lets_go", "POST")
        rest = [line async for line in lines]
    code, _ = await running.end()
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert refused.json()["error"]["code"] == "server_is_overloaded"
    assert alive.status_code == 200
    assert rest == [*map(str, range(1, 15)), "end"]
    assert code == 0


async def test_a_stream_longer_than_the_drain_is_cut_off(launch):
    running = await launch(server={"port": 0, "drain_seconds": 0.3})
    async with running.stream(chunks=1000, interval=0.05) as lines:
        running.signal(signal.SIGTERM)
        rest = [line async for line in lines]
    code, errors = await running.end()
    assert (rest[-1], code) == ("failed", 0)
    assert messages(errors)[-1] == "[server] drain_seconds are over: cut off 1 responses"


async def test_a_second_signal_cuts_off_at_once(launch):
    running = await launch()
    async with running.stream(chunks=1000, interval=0.05) as lines:
        running.signal(signal.SIGTERM)
        await wait_until_draining(running)
        running.signal(signal.SIGINT)
        rest = [line async for line in lines]
    code, errors = await running.end()
    assert (rest[-1], code) == ("failed", 1)
    assert messages(errors)[-1] == "SIGINT again: cut off 1 responses"


async def leave_unread(running):
    """Ask for more than fits on the way, and never read it."""
    reader, writer = await asyncio.open_connection(*running.address, limit=1000)
    writer.write(b"POST /v1/responses?chunks=10000000&interval=0 HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b"200" in await reader.readline()
    return writer


async def test_a_client_that_does_not_read_cannot_hold_up_the_end(launch):
    running = await launch(server={"port": 0, "drain_seconds": 0, "close_grace_seconds": 0.2})
    writer = await leave_unread(running)
    running.signal(signal.SIGTERM)
    code, errors = await running.end()
    writer.close()
    assert code == 0
    assert messages(errors)[-1] == "[server] drain_seconds are over: cut off 1 responses"


async def test_a_third_signal_skips_the_grace(launch):
    running = await launch(server={"port": 0, "close_grace_seconds": 1000})
    writer = await leave_unread(running)
    running.signal(signal.SIGTERM)
    await wait_until_draining(running)
    running.signal(signal.SIGTERM)
    while "again" not in (await running.process.stderr.readline()).decode():
        pass
    running.signal(signal.SIGTERM)
    code, errors = await running.end()
    writer.close()
    assert code == 1
    assert "Traceback" not in errors


async def test_a_handler_that_does_not_end_is_cancelled_without_a_traceback(launch):
    running = await launch(server={"port": 0, "drain_seconds": 0, "close_grace_seconds": 0})
    async with running.stream(chunks=1, interval=0, more="lingers=1000") as lines:
        assert await anext(lines) == "end"
        running.signal(signal.SIGTERM)
        code, errors = await running.end()
    assert code == 0
    assert "Traceback" not in errors


async def test_a_hangup_that_finds_faults_names_them_and_changes_nothing(launch):
    running = await launch()
    running.signal(signal.SIGHUP)
    record = msgspec.json.decode(await asyncio.wait_for(running.process.stderr.readline(), PATIENCE))
    assert (record["level"], record["problems"]) == ("error", ["--set: server.port: is not what it was"])
    assert (await status(f"{running.url}/livez")).status_code == 200


async def test_a_hangup_in_a_drain_is_ignored(launch):
    running = await launch()
    async with running.stream(chunks=3, interval=0, more="holds=1") as lines:
        running.signal(signal.SIGTERM)
        await wait_until_draining(running)
        running.signal(signal.SIGHUP)
        while b"reload: ignored" not in (line := await running.process.stderr.readline()):
            assert line
        await status(f"{running.url}/v1/responses?lets_go", "POST")
        assert [line async for line in lines][-1] == "end"
    code, errors = await running.end()
    assert code == 0
    assert b"reload: ignored, because the gateway is shutting down" in line
    assert "is not what it was" not in errors


async def test_a_hangup_while_waiting_for_the_upstream_is_served(launch):
    running = await launch(wait=False, probes=99, wait_upstream=60)
    assert b"Waiting for the inference server" in await asyncio.wait_for(running.process.stderr.readline(), PATIENCE)
    running.signal(signal.SIGHUP)
    line = await asyncio.wait_for(running.process.stderr.readline(), PATIENCE)
    while b"reload" not in line:
        line = await asyncio.wait_for(running.process.stderr.readline(), PATIENCE)
    running.signal(signal.SIGTERM)
    assert (await running.end())[0] == 0


# ---------------------------------------------------------------- requests


async def test_more_connections_than_allowed_are_refused(launch):
    running = await launch(server={"port": 0, "max_connections": 1})
    async with httpx.AsyncClient() as first, httpx.AsyncClient() as second:
        assert (await first.get(f"{running.url}/livez")).status_code == 200
        refused = await second.get(f"{running.url}/version")
        alive = await second.get(f"{running.url}/livez")
        served = await first.get(f"{running.url}/version")
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "server_is_overloaded")
    assert (refused.headers["connection"], refused.headers["retry-after"]) == ("close", "1")
    assert (alive.status_code, served.status_code) == (200, 200)


async def test_what_is_not_http_is_told_so(launch):
    running = await launch()
    reader, writer = await asyncio.open_connection(*running.address)
    writer.write(b"nonsense\r\n\r\n")
    answer = await reader.read()
    writer.close()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"x-request-id: req_" in answer
    assert msgspec.json.decode(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_http"


async def test_the_log_has_one_access_line_under_the_callers_id(launch):
    running = await launch()
    async with httpx.AsyncClient() as client:
        await client.get(f"{running.url}/livez?key=secret", headers={"x-request-id": "mine", "authorization": "secret"})
    running.signal(signal.SIGTERM)
    _, errors = await running.end()
    lines = [msgspec.json.decode(line) for line in errors.splitlines()]
    (access,) = [line for line in lines if line["logger"] == "gateway.access"]
    assert (access["request_id"], access["method"], access["path"], access["status"]) == ("mine", "GET", "/livez", 200)
    assert "secret" not in errors
