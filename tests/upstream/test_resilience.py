"""Retries and the circuit breaker of a client that talks to real sockets."""

import asyncio
import socket
import threading

import pytest
from msgspec import structs

from gateway.protocol.errors import Unavailable, UpstreamError, UpstreamRefused, UpstreamTimeout, UpstreamUnavailable
from gateway.telemetry.metrics import Metrics


class Watched:
    """A started client with its metrics and a clock of its own for breaker and budget."""

    def __init__(self) -> None:
        self.now = 0.0
        self.metrics = Metrics()

    def sample(self, name: str) -> float:
        return self.metrics.registry.get_sample_value(name, {"upstream": "default"})

    @property
    def retries(self) -> float:
        return self.sample("gateway_upstream_connect_retries_total")

    @property
    def state(self) -> float:
        return self.sample("gateway_upstream_breaker_state")


@pytest.fixture
def watched():
    return Watched()


@pytest.fixture
def reach(connect, watched):
    """Return a factory of clients that are watched and wait little between attempts."""

    async def build(url, **settings):
        changes = {"longest_retry_wait": 0.001, **settings}
        return await connect(url, metrics=watched.metrics, clock=lambda: watched.now, **changes)

    return build


@pytest.fixture
async def ok_server(raw_server, answer):
    async def serve(server, reader, writer):
        while True:
            await server.read_request(reader)
            writer.write(answer("200 OK", b"{}"))

    return await raw_server(serve)


def fail_connects(monkeypatch, failures):
    """Let the first attempts to connect end in these errors; returns the list of attempts."""
    loop = asyncio.get_running_loop()
    real, attempts = loop.create_connection, []

    async def create_connection(*place, **options):
        attempts.append(place)
        if len(attempts) <= len(failures):
            raise failures[len(attempts) - 1]
        return await real(*place, **options)

    monkeypatch.setattr(loop, "create_connection", create_connection)
    return attempts


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


# ---------------------------------------------------------------- retries


@pytest.mark.parametrize(
    "failure", [ConnectionRefusedError(), OSError("no route"), ConnectionResetError("handshake"), TimeoutError()]
)
async def test_a_connect_that_fails_twice_is_no_failed_call(
    ok_server, reach, call, read_all, watched, monkeypatch, failure
):
    upstream = await reach(ok_server.url)
    attempts = fail_connects(monkeypatch, [failure, failure])
    assert await read_all(await upstream.open(call())) == b"{}"
    assert len(attempts) == 3
    assert watched.retries == 2
    assert len(ok_server.requests) == 1


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2), (4, 5)])
async def test_retries_are_bounded(reach, call, watched, monkeypatch, unused_port, retries, attempts):
    upstream = await reach(f"http://127.0.0.1:{unused_port}", connect_retries=retries)
    seen = fail_connects(monkeypatch, [])
    with pytest.raises(UpstreamUnavailable, match="cannot be reached"):
        await upstream.open(call())
    assert len(seen) == attempts
    assert watched.retries == retries


async def test_an_outage_is_not_multiplied(reach, call, watched, unused_port):
    upstream = await reach(f"http://127.0.0.1:{unused_port}", retry_share=0.1, breaker_failures=0)
    for _ in range(100):
        with pytest.raises(UpstreamUnavailable):
            await upstream.open(call())
    assert 10 <= watched.retries <= 20


async def test_a_server_that_hangs_up_during_the_handshake_is_tried_again(raw_server, reach, call, watched):
    async def serve(server, reader, writer):
        await reader.read(1)

    server = await raw_server(serve)
    upstream = await reach(server.url.replace("http:", "https:"))
    with pytest.raises(UpstreamUnavailable):
        await upstream.open(call())
    assert server.connections == 3
    assert watched.retries == 2


async def test_what_another_attempt_cannot_mend_is_not_tried_again(raw_server, reach, call, watched):
    async def serve(server, reader, writer):
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()

    server = await raw_server(serve)
    upstream = await reach(server.url.replace("http:", "https:"))
    with pytest.raises(UpstreamUnavailable, match="does not speak TLS"):
        await upstream.open(call())
    assert (server.connections, watched.retries) == (1, 0)


async def test_a_full_pool_is_not_tried_again_and_no_failure(ok_server, reach, call, watched):
    upstream = await reach(ok_server.url, max_connections=1, breaker_failures=1)
    held = await upstream.open(call())
    upstream.reconfigure(structs.replace(upstream._settings, connect_timeout=0.05))
    with pytest.raises(UpstreamTimeout, match="max_connections"):
        await upstream.open(call())
    assert (watched.retries, watched.state) == (0, 0)
    await held.close()


@pytest.mark.parametrize("reads", [False, True])
async def test_a_call_of_which_a_byte_may_have_left_is_never_repeated(raw_server, reach, call, watched, reads):
    async def serve(server, reader, writer):
        if reads:
            await server.read_request(reader)
        else:
            await reader.read(1)

    server = await raw_server(serve)
    upstream = await reach(server.url)
    with pytest.raises(UpstreamUnavailable, match="before it answered"):
        await upstream.open(call(b"z" * 300_000))
    assert (server.connections, watched.retries) == (1, 0)


async def test_an_end_that_the_loop_has_not_seen_costs_no_call(reach, call, read_all, answer):
    """The server hangs up while the loop is busy: the next call must look before it uses the connection."""
    hang_up = threading.Event()

    def serve_one() -> None:
        peer, _ = listener.accept()
        with peer:
            while b"}" not in peer.recv(65536):
                pass
            peer.sendall(answer("200 OK", b"{}"))
            hang_up.wait(20)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        upstream = await reach(f"http://127.0.0.1:{listener.getsockname()[1]}")
        first = asyncio.create_task(asyncio.to_thread(serve_one))
        assert await read_all(await upstream.open(call())) == b"{}"
        (idle,) = upstream._pool._idle
        idle._transport.pause_reading()  # as if the loop had not come round to it
        hang_up.set()
        await first
        second = asyncio.create_task(asyncio.to_thread(serve_one))
        assert idle.is_open
        assert idle.is_stale
        assert await read_all(await upstream.open(call())) == b"{}"
        await second


async def test_a_caller_that_leaves_ends_the_retries(reach, call, watched, unused_port):
    upstream = await reach(f"http://127.0.0.1:{unused_port}", longest_retry_wait=60.0, connect_retries=10)
    opening = asyncio.create_task(upstream.open(call()))
    await until(lambda: watched.retries >= 2)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    seen = watched.retries
    await asyncio.sleep(0.2)
    assert watched.retries == seen
    assert upstream._pool._free.free == 1024


async def test_retries_end_with_the_patience_for_the_first_byte(reach, call, unused_port):
    settings = {"longest_retry_wait": 60.0, "connect_retries": 10, "first_byte_timeout": 0.2}
    upstream = await reach(f"http://127.0.0.1:{unused_port}", **settings)
    with pytest.raises(UpstreamTimeout, match=r"within 0\.2 seconds"):
        await upstream.open(call())


# ---------------------------------------------------------------- the breaker


@pytest.fixture
async def moody(raw_server, answer):
    """Return a server that does what its mood says."""

    async def serve(server, reader, writer):
        while True:
            await server.read_request(reader)
            if server.mood == "hang up":
                return
            if server.mood == "silence":
                await reader.read()
                return
            writer.write(answer(server.mood, b'{"error":{"message":"no"}}'))

    server = await raw_server(serve)
    server.mood = "200 OK"
    return server


async def attempt(upstream, call) -> str:
    """Make a call and tell how it ended."""
    try:
        exchange = await upstream.open(call())
    except (Unavailable, UpstreamError) as error:
        return type(error).__name__
    await exchange.close()
    return "answered"


@pytest.mark.parametrize(
    ("mood", "outcome"),
    [
        ("502 Bad Gateway", "UpstreamRefused"),
        ("503 Service Unavailable", "UpstreamRefused"),
        ("504 Gateway Timeout", "UpstreamRefused"),
        ("hang up", "UpstreamUnavailable"),
        ("silence", "UpstreamTimeout"),
        ("gibberish\r\n", "UpstreamError"),
    ],
)
async def test_failures_open_it_and_calls_are_refused_before_any_connection(
    moody, reach, call, watched, mood, outcome, caplog
):
    upstream = await reach(moody.url, breaker_failures=3, first_byte_timeout=0.1 if mood == "silence" else 20.0)
    moody.mood = mood
    for _ in range(3):
        assert watched.state == 0
        assert await attempt(upstream, call) == outcome
    assert watched.state == 2
    seen = len(moody.requests), moody.connections
    with pytest.raises(Unavailable) as caught:
        await upstream.open(call())
    refusal = caught.value
    assert (refusal.status, refusal.code, refusal.retry_after) == (503, "server_is_overloaded", 5)
    assert (len(moody.requests), moody.connections) == seen
    assert "circuit breaker open" in upstream.health.detail
    assert "upstream default: circuit breaker open" in caplog.text


@pytest.mark.checklist(62)
@pytest.mark.parametrize("mood", ["400 Bad", "401 No", "404 No", "408 No", "413 No", "422 No", "429 Slow", "500 Oops"])
async def test_what_one_request_may_be_to_blame_for_never_opens_it(moody, reach, call, watched, mood):
    upstream = await reach(moody.url, breaker_failures=2)
    moody.mood = mood
    for _ in range(6):
        assert await attempt(upstream, call) == "UpstreamRefused"
    assert watched.state == 0


async def test_no_connection_opens_it(reach, call, watched, unused_port):
    upstream = await reach(f"http://127.0.0.1:{unused_port}", breaker_failures=2)
    outcomes = [await attempt(upstream, call) for _ in range(3)]
    assert outcomes == ["NotConnected", "NotConnected", "Unavailable"]


async def test_callers_that_leave_are_no_failures(moody, reach, call, watched):
    upstream = await reach(moody.url, breaker_failures=2)
    moody.mood = "silence"
    for number in range(1, 6):
        opening = asyncio.create_task(upstream.open(call()))
        await until(lambda number=number: len(moody.requests) == number)
        opening.cancel()
        await asyncio.wait({opening})
    assert watched.state == 0


async def test_one_trial_at_a_time_and_one_who_leaves_gives_up_the_place(moody, reach, call, watched):
    upstream = await reach(moody.url, breaker_failures=1)
    moody.mood = "hang up"
    await attempt(upstream, call)
    watched.now += 5
    assert watched.state == 1
    moody.mood = "silence"
    trial = asyncio.create_task(upstream.open(call()))
    await until(lambda: len(moody.requests) == 2)
    outcomes = await asyncio.gather(*(attempt(upstream, call) for _ in range(10)))
    assert outcomes == ["Unavailable"] * 10
    trial.cancel()
    await asyncio.wait({trial})
    moody.mood = "200 OK"
    assert await attempt(upstream, call) == "answered"
    assert watched.state == 0
    assert len(moody.requests) == 3
    assert upstream.health.detail == "not probed yet"


async def test_a_refusal_of_the_trial_by_its_own_fault_closes_it(moody, reach, call, watched):
    upstream = await reach(moody.url, breaker_failures=1)
    moody.mood = "503 Service Unavailable"
    await attempt(upstream, call)
    watched.now += 5
    moody.mood = "400 Bad Request"
    with pytest.raises(UpstreamRefused):
        await upstream.open(call())
    assert watched.state == 0


async def test_a_healthy_probe_closes_it_when_the_time_is_up(moody, reach, call, watched):
    upstream = await reach(moody.url, breaker_failures=3)
    moody.mood = "hang up"
    for _ in range(3):
        await attempt(upstream, call)
    moody.mood = "200 OK"
    assert (await upstream.probe()).healthy
    assert watched.state == 2
    watched.now += 5
    moody.mood = "503 Loading"
    assert not (await upstream.probe()).healthy
    assert watched.state == 1
    moody.mood = "200 OK"
    await upstream.probe()
    assert watched.state == 0


async def test_it_can_be_switched_off(moody, reach, call, watched):
    upstream = await reach(moody.url, breaker_failures=0)
    moody.mood = "503 Service Unavailable"
    assert {await attempt(upstream, call) for _ in range(20)} == {"UpstreamRefused"}
    assert watched.state == 0
