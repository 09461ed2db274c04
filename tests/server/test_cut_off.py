"""A whole gateway in front of the simulator: what its callers see when it does not wait for their responses."""

import asyncio
import json
import signal

import httpx
import pytest
from conformance.verdict import judge_stream
from harness.forked import run_gateway
from server.conftest import PATIENCE, PipedProcess, Running

from gateway.upstream.simulated import serve_simulator

RESPONSES = 5


@pytest.fixture
async def upstream():
    async with serve_simulator() as served:
        yield served


@pytest.fixture
async def launch(upstream, tmp_path):
    """Starts a gateway, which is killed if the test does not end it."""
    started = []

    async def launch(drain_seconds):
        running = Running(await start(upstream, tmp_path, drain_seconds))
        started.append(running.process)
        running.start_line = (await asyncio.wait_for(running.process.stdout.readline(), PATIENCE)).decode()
        return running

    yield launch
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def start(upstream, tmp_path, drain_seconds):
    settings = [
        "server.port=0",
        f"server.drain_seconds={drain_seconds}s",
        "admin.bind=127.0.0.1:0",
        "telemetry.log_format=console",
    ]
    return await PipedProcess.start(
        *(run_gateway, "serve"),
        *("--upstream", upstream.url, "--database", f"sqlite:///{tmp_path}/responses.db"),
        *(part for setting in settings for part in ("--set", setting)),
    )


async def active(running):
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        metrics = await client.get(f"{running.admin_url}/metrics")
    return next(float(line.split()[1]) for line in metrics.text.splitlines() if line.startswith("gateway_active_resp"))


async def wait_until_active(running, count):
    async with asyncio.timeout(PATIENCE):
        while await active(running) != count:
            await asyncio.sleep(0.02)


def post(client, running, stream):
    body = {"model": "sim-stall", "input": "hi", "stream": stream}
    return asyncio.create_task(client.post(f"{running.url}/v1/responses", json=body, timeout=PATIENCE))


@pytest.mark.parametrize("signals", [1, 2])
async def test_every_caller_is_told(launch, signals):
    gateway = await launch(drain_seconds=0.5 if signals == 1 else 1000)
    async with httpx.AsyncClient(timeout=PATIENCE) as client:
        streams = [post(client, gateway, stream=True) for _ in range(RESPONSES)]
        answers = [post(client, gateway, stream=False) for _ in range(RESPONSES)]
        await wait_until_active(gateway, 2 * RESPONSES)
        gateway.signal(signal.SIGTERM)
        if signals == 2:
            while (await client.get(f"{gateway.url}/readyz")).status_code != 503:
                await asyncio.sleep(0.01)
            gateway.signal(signal.SIGTERM)
        for stream in await asyncio.gather(*streams):
            assert judge_stream(stream.content) == []
            assert '"code":"server_is_overloaded"' in stream.text.rpartition("event: response.failed")[2]
        for answer in await asyncio.gather(*answers):
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "server_is_overloaded")
            assert answer.headers["retry-after"] == "1"
    code, errors = await gateway.end()
    assert code == signals - 1
    assert "Traceback" not in errors
    assert errors.count("cut off 10 responses") == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_behind_another_request_ends_its_inference(launch, stream):
    gateway = await launch(drain_seconds=0.5)
    body = json.dumps({"model": "sim-stall", "input": "hi", "stream": stream}).encode()
    _, writer = await asyncio.open_connection(*gateway.address)
    head = b"POST /v1/responses HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body)
    writer.write(head + body)
    await wait_until_active(gateway, 1)
    writer.write(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await asyncio.sleep(0.1)
    writer.close()
    await wait_until_active(gateway, 0)
    gateway.signal(signal.SIGTERM)
    code, errors = await gateway.end()
    assert code == 0
    assert "Traceback" not in errors
