"""A gateway that stops with WebSockets open, and clients that hold one up: nobody is left without a word, or waits."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from signal import SIGTERM
from typing import Any

import pytest
from harness.client import client
from harness.engine import frame, says
from harness.frames import CLOSE, Event
from harness.processes import Gateway
from harness.upstream import Reply, Request, Upstream
from harness.websocket import ConnectionEnded, HandshakeRefused, WebSocket
from integration.test_disconnect import never_stops
from integration.turns import Held, await_begun, expect_error, expect_failed, expect_sound, told
from integration.watched import WatchedGateway

BUSY: dict[str, Any] = {"status": 503, "kind": "service_unavailable_error"}


@pytest.fixture
def well(upstream: Upstream) -> str:
    return upstream.script("stopping well", says("well"))


# ---------------------------------------------------------------- SIGTERM


@pytest.mark.checklist(20)
def test_a_stop_lets_turns_end_and_tells_what_waits(
    start_gateway: Callable[..., Gateway], upstream: Upstream, well: str
) -> None:
    gateway = start_gateway({"websocket.close_timeout_seconds": "1"})
    held, later = Held(upstream, "held at the stop"), upstream.script("queued at the stop", says("never"))
    idle = [WebSocket(gateway.port) for _ in range(3)]
    with idle[0], idle[1], idle[2], WebSocket(gateway.port) as busy:
        told(idle[0], well)
        idle[1].answers_close = False
        busy.create(held.model, stream_id="a")
        await_begun(busy, {"a"})
        for lane in ("a", "a"):
            busy.create(later, stream_id=lane, event_id="waits")
        busy.ping(b"read so far")
        busy.await_pong(b"read so far")
        gateway.signal(SIGTERM)
        # The signal has to be there before the frame.
        gateway.await_log("draining")
        busy.create(later, stream_id="b")
        (event,) = busy.events_until_terminal("b")
        expect_error(event, "server_is_overloaded", stream_id="b", **BUSY)
        with pytest.raises(HandshakeRefused) as refusal:
            WebSocket(gateway.port)
        assert (refusal.value.answer.status, refusal.value.answer.error["code"]) == (503, "server_is_overloaded")
        held.release.set()
        expect_sound(busy.events_until_terminal("a"), "a")
        for event in read_errors(busy, 2):
            expect_error(event, "server_is_overloaded", stream_id="a", event_id="waits", **BUSY)
        assert busy.await_close().close_code == 1001
        for socket in idle:
            assert socket.await_close().close_code == 1001
            assert socket.unread == []
        assert await_end(gateway) == 0
    assert upstream.calls(later) == []
    assert gateway.rows(held.model) == 1
    assert "Traceback" not in gateway.log


def read_errors(socket: WebSocket, number: int) -> list[Event]:
    """Read until so many error frames have come; everything else stays to be asked for."""
    kept, found = list(socket.unread), []
    socket.unread.clear()
    while len(found) < number:
        event = socket.next_event()
        (found if event["type"] == "error" else kept).append(event)
    socket.unread[:0] = kept
    return found


def await_end(gateway: Gateway) -> int:
    """Wait for the process without another signal and return its exit code."""
    assert gateway._process is not None
    return gateway._process.wait(15)


@pytest.mark.checklist(20)
def test_a_turn_longer_than_the_drain_is_cut_off(
    start_gateway: Callable[..., Gateway], upstream: Upstream, well: str
) -> None:
    gateway = start_gateway({"server.drain_seconds": "0.3"})
    model = upstream.script("endless at the stop", never_stops)
    with WebSocket(gateway.port) as socket:
        told(socket, well)
        for lane in ("a", "b"):
            socket.create(model, stream_id=lane)
        await_begun(socket, {"a", "b"})
        gateway.signal(SIGTERM)
        for lane in ("a", "b"):
            expect_failed(socket.events_until_terminal(lane), "server_is_overloaded", lane)
        assert socket.await_close().close_code == 1001
        assert socket.unread == []
        assert await_end(gateway) == 0
    assert all(call.left.wait(20) for call in upstream.calls(model))
    assert gateway.rows(model) == 0


@pytest.mark.checklist(20)
def test_a_second_signal_cuts_off_at_once(start_gateway: Callable[..., Gateway], upstream: Upstream) -> None:
    gateway = start_gateway()
    model = upstream.script("endless at two signals", never_stops)
    with WebSocket(gateway.port) as socket:
        socket.create(model)
        await_begun(socket, {None})
        gateway.signal(SIGTERM)
        with client(gateway.port) as caller:
            while caller.get("/readyz").status == 200:
                time.sleep(0.01)
        gateway.signal(SIGTERM)
        expect_failed(socket.events_until_terminal(), "server_is_overloaded")
        assert socket.await_close().close_code == 1001
        assert await_end(gateway) == 1


@pytest.mark.checklist(18, 20)
def test_a_client_that_does_not_read_cannot_hold_up_the_end(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = start_gateway({"server.drain_seconds": "0.5", "server.close_grace_seconds": "0.5"})
    model = upstream.script("flood at the stop", flood)
    with WebSocket(gateway.port, receive_buffer=4096) as stuck, WebSocket(gateway.port) as silent:
        silent.answers_close = False
        stuck.create(model)
        upstream.await_call(model)
        time.sleep(0.5)
        assert gateway.stop() == 0
        assert silent.await_close().close_code == 1001


@pytest.mark.checklist(20, 26)
def test_a_drain_waits_for_a_client_that_still_reads(start_gateway: Callable[..., Gateway], upstream: Upstream) -> None:
    gateway = start_gateway({"server.close_grace_seconds": "0.5"})
    text = "0123456789" * 60_000
    model = upstream.script("read during the stop", says(text, 64))
    with WebSocket(gateway.port, receive_buffer=4096) as socket:
        socket.create(model)
        deadline = time.monotonic() + 20
        while not gateway.rows(model):
            assert time.monotonic() < deadline, "the response is not stored"
            time.sleep(0.05)
        gateway.signal(SIGTERM)
        gateway.await_log("draining")
        # More than the grace for last bytes.
        time.sleep(1)
        expect_sound(events := socket.events_until_terminal(timeout=30))
        assert events[-1]["response"]["output"][0]["content"][0]["text"] == text
        assert socket.await_close().close_code == 1001
        assert await_end(gateway) == 0


# ---------------------------------------------------------------- clients that do not read


async def flood(request: Request, reply: Reply) -> None:
    """More deltas than any buffer between here and a client that does not read can hold."""
    *opening, _, _, _, _ = says("").events()
    await reply.head()
    await reply.send(b"".join(frame(event) for event in opening))
    place = {"item_id": "msg_engine", "output_index": 0, "content_index": 0}
    delta = frame({"type": "response.output_text.delta", **place, "delta": "x" * 64, "logprobs": []})
    while True:
        await reply.send(delta * 100)
        await asyncio.sleep(0.001)


@pytest.mark.checklist(16)
def test_who_does_not_read_is_left_at_the_deadline(tmp_path: Path, upstream: Upstream, well: str) -> None:
    settings = {"websocket.send_deadline_seconds": "1", "websocket.delivery_max_bytes": "256KiB"}
    model = upstream.script("ws flood", flood)
    with WatchedGateway(tmp_path, upstream, settings) as gateway, WebSocket(gateway.port) as reading:
        told(reading, well)
        before = gateway.resident_mib
        with WebSocket(gateway.port, receive_buffer=4096) as stuck:
            stuck.create(model)
            call = upstream.await_call(model)
            deadline = time.monotonic() + 20
            while not call.left.is_set():
                assert time.monotonic() < deadline, "the inference for a client that does not read goes on"
                assert gateway.resident_mib - before < 24
                assert gateway.count("gateway_delivery_queue_bytes") < 512 * 1024
                told(reading, well, store=False)
            with suppress(ConnectionEnded, TimeoutError):
                while (entry := stuck.next_frame(2)).opcode != CLOSE:
                    pass
                assert entry.close_code == 1008
        assert gateway.rows(model) == 0
        told(reading, well)


@pytest.mark.checklist(16)
def test_who_reads_again_in_time_gets_everything(gateway: Gateway, upstream: Upstream) -> None:
    text = "0123456789" * 30_000
    model = upstream.script("ws paused", says(text, 64))
    with WebSocket(gateway.port, receive_buffer=4096) as socket:
        socket.create(model)
        upstream.await_call(model)
        time.sleep(1)
        expect_sound(events := socket.events_until_terminal(timeout=30))
    assert events[-1]["response"]["output"][0]["content"][0]["text"] == text
