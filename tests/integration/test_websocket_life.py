"""The life of one WebSocket: pings, leaving, ends by time and size, and that nothing of it is left."""

import sqlite3
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress

import pytest
from harness.client import client, create
from harness.engine import says
from harness.frames import CONTINUATION, PING, TEXT
from harness.processes import Gateway
from harness.upstream import Reply, Request, Upstream
from harness.websocket import HandshakeRefused, WebSocket
from integration.test_disconnect import NOTICE_SECONDS, never_stops, stalls_before_answering, stalls_mid_stream
from integration.turns import COMPLETED, Held, ask, await_begun, expect_error, expect_sound, id_of, told

KIB = 1 << 10
WAYS = [WebSocket.close, WebSocket.leave, WebSocket.reset, WebSocket.half_close]
PATIENT = {"storage.busy_timeout_seconds": "30", "storage.verify_after_seconds": "3600"}


@pytest.fixture
def socket(gateway: Gateway) -> Iterator[WebSocket]:
    with WebSocket(gateway.port) as running:
        yield running


@pytest.fixture
def well(upstream: Upstream) -> str:
    return upstream.script("life well", says("well"))


@pytest.fixture
def held(upstream: Upstream, request: pytest.FixtureRequest) -> Iterator[Held]:
    """A model that waits; it is let go at the end."""
    script = Held(upstream, f"life {request.node.name}")
    yield script
    script.release.set()


# ---------------------------------------------------------------- pings


@pytest.mark.checklist(9)
def test_a_ping_is_answered_idle_and_during_a_turn(socket: WebSocket, held: Held) -> None:
    socket.ping(b"idle")
    socket.await_pong(b"idle")
    socket.create(held.model)
    await_begun(socket, {None})
    for payload in (b"", b"busy", b"x" * 125):
        socket.ping(payload)
        socket.await_pong(payload)
    assert not any(event["type"] == COMPLETED for event in socket.unread)
    held.release.set()
    expect_sound(socket.events_until_terminal())


def test_a_ping_between_the_pieces_of_a_message_is_answered(socket: WebSocket, well: str) -> None:
    text = b'{"type":"response.create","model":"life well","input":"hi"}'
    socket.send_frame(TEXT, text[:20], final=False)
    socket.ping(b"between")
    socket.await_pong(b"between")
    socket.send_frame(CONTINUATION, text[20:])
    expect_sound(socket.events_until_terminal())


def test_the_gateway_pings_and_leaves_who_does_not_answer(start_gateway: Callable[..., Gateway], held: Held) -> None:
    gateway = start_gateway({"websocket.ping_interval_seconds": "0.1", "websocket.pong_timeout_seconds": "2"})
    with WebSocket(gateway.port) as alive, WebSocket(gateway.port) as silent, ThreadPoolExecutor(1) as beside:
        silent.answers_pings = False
        alive.create(held.model)
        await_begun(alive, {None})
        closing_frame = beside.submit(silent.await_close)
        while not closing_frame.done():
            alive.next_frame()
        assert [entry.opcode for entry in alive.frames].count(PING) >= 3
        assert closing_frame.result().close_code == 1011
        held.release.set()
        expect_sound(alive.events_until_terminal())


def test_silence_is_filled_only_where_the_operator_says_so(start_gateway: Callable[..., Gateway], held: Held) -> None:
    gateway = start_gateway({"websocket.progress_seconds": "0.1"})
    with WebSocket(gateway.port) as socket:
        socket.create(held.model, stream_id="a")
        await_begun(socket, {"a"})
        begun = list(socket.unread)
        socket.unread.clear()
        while [event["type"] for event in begun].count("response.in_progress") < 4:
            begun.append(socket.next_event())
        held.release.set()
        events = [*begun, *socket.events_until_terminal("a")]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == COMPLETED


# ---------------------------------------------------------------- clients that leave


@pytest.mark.checklist(25)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize(
    "script", [stalls_before_answering, stalls_mid_stream, never_stops], ids=lambda script: script.__name__
)
def test_the_upstream_is_told_at_once(
    gateway: Gateway,
    upstream: Upstream,
    way: Callable[[WebSocket], None],
    script: Callable[[Request, Reply], object],
) -> None:
    model = upstream.script(f"ws {way.__name__} {script.__name__}", script)
    with WebSocket(gateway.port) as socket:
        socket.create(model, stream_id="a")
        call = upstream.await_call(model)
        if script is not stalls_before_answering:
            await_begun(socket, {"a"})
        left_at = time.monotonic()
        way(socket)
        seconds = call.seconds_to_notice(left_at)
    print(f"the upstream knew after {seconds * 1000:.1f} ms")
    assert seconds < NOTICE_SECONDS
    assert gateway.rows(model) == 0


@pytest.mark.checklist(19)
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "in a flow of events"])
def test_a_close_is_answered_and_nothing_follows(socket: WebSocket, upstream: Upstream, busy: bool) -> None:
    if busy:
        socket.create(upstream.script("ws closed in a flow", never_stops))
        await_begun(socket, {None})
    socket.close(1000, "enough")
    assert socket.await_close().close_code == 1000


@pytest.mark.checklist(25)
def test_leaving_ends_every_lane_and_what_waits(gateway: Gateway, upstream: Upstream) -> None:
    model = upstream.script("ws lanes left", stalls_mid_stream)
    with WebSocket(gateway.port) as socket:
        for lane in ("a", "b", "c"):
            socket.create(model, stream_id=lane)
            socket.create(model, "waits", stream_id=lane)
        await_begun(socket, {"a", "b", "c"})
    calls = upstream.calls(model)
    assert len(calls) == 3
    assert all(call.left.wait(20) for call in calls)
    time.sleep(0.2)
    assert len(upstream.calls(model)) == 3


@pytest.mark.checklist(23, 26, 28)
@pytest.mark.parametrize("fields", [{}, {"generate": False}], ids=["a turn", "a warm-up"])
def test_who_leaves_during_the_commit_finds_the_response(
    start_gateway: Callable[..., Gateway], upstream: Upstream, well: str, fields: dict[str, bool]
) -> None:
    gateway = start_gateway(PATIENT)
    model = upstream.script(f"ws commit {fields}", says("kept"))
    with closing(sqlite3.connect(gateway.database, isolation_level=None)) as lock:
        with WebSocket(gateway.port) as socket:
            told(socket, well)
            lock.execute("BEGIN IMMEDIATE")
            socket.create(model, stream_id="slow", **fields)
            if not fields:
                assert upstream.await_call(model).ended.wait(20)
            # Slow storage holds up its own lane alone.
            told(socket, well, store=False)
            socket.ping(b"reading on")
            socket.await_pong(b"reading on")
            with pytest.raises(TimeoutError):
                socket.events_until_terminal("slow", timeout=0.3)
        lock.execute("ROLLBACK")
    deadline = time.monotonic() + 20
    while gateway.rows(model) == 0:
        assert time.monotonic() < deadline, "the response was lost"
        time.sleep(0.05)
    with closing(sqlite3.connect(gateway.database)) as look:
        ((response_id,),) = look.execute("SELECT id FROM responses WHERE model = ?", (model,))
    with client(gateway.port) as caller:
        assert caller.get(f"/v1/responses/{response_id}").json["status"] == "completed"


# ---------------------------------------------------------------- ends by time


@pytest.mark.checklist(17, 18, 19)
def test_a_lifetime_ends(start_gateway: Callable[..., Gateway], well: str) -> None:
    """Whether the client echoes the Close or does not."""
    gateway = start_gateway({"websocket.lifetime_seconds": "2", "websocket.close_timeout_seconds": "1"})
    with WebSocket(gateway.port) as echoing, WebSocket(gateway.port) as silent:
        silent.answers_close = False
        for socket in (echoing, silent):
            told(socket, well)
        for socket in (echoing, silent):
            closing_frame = socket.await_close()
            (event,) = socket.unread
            expect_error(event, "websocket_connection_limit_reached")
            assert event["error"]["message"] == (
                "Responses websocket connection limit reached (2 seconds). "
                "Create a new websocket connection to continue."
            )
            assert closing_frame.close_code == 1000
    with WebSocket(gateway.port) as socket:
        told(socket, well)


@pytest.mark.checklist(17)
def test_a_turn_may_outlive_the_lifetime_for_a_while(
    start_gateway: Callable[..., Gateway], upstream: Upstream, held: Held, well: str
) -> None:
    gateway = start_gateway({"websocket.lifetime_seconds": "1.5"})
    late = upstream.script("ws too late", says("never"))
    with WebSocket(gateway.port) as socket:
        socket.create(held.model, stream_id="a")
        await_begun(socket, {"a"})
        while ask(socket, well, stream_id="b", store=False)[-1]["type"] != "error":
            time.sleep(0.1)
        socket.create(late, stream_id="b")
        socket.ping(b"still here")
        socket.await_pong(b"still here")
        held.release.set()
        expect_sound(socket.events_until_terminal("a"), "a")
        assert socket.await_close().close_code == 1000
        assert socket.unread
        assert {event["error"]["code"] for event in socket.unread} == {"websocket_connection_limit_reached"}
    assert upstream.calls(late) == []


@pytest.mark.checklist(17)
def test_a_turn_is_cut_off_when_the_grace_is_over(start_gateway: Callable[..., Gateway], upstream: Upstream) -> None:
    gateway = start_gateway({"websocket.lifetime_seconds": "1.5", "websocket.lifetime_grace_seconds": "0.1"})
    model = upstream.script("ws endless", never_stops)
    with WebSocket(gateway.port) as socket:
        socket.create(model, stream_id="a")
        events = socket.events_until_terminal("a")
        assert events[-1]["type"] == "response.failed"
        assert socket.await_close().close_code == 1000
        assert [event["error"]["code"] for event in socket.unread] == ["websocket_connection_limit_reached"]
    assert upstream.await_call(model).left.wait(20)
    assert gateway.rows() == 0


@pytest.mark.parametrize("key", ["handshake_timeout_seconds", "idle_timeout_seconds"])
def test_who_says_nothing_is_left(start_gateway: Callable[..., Gateway], well: str, held: Held, key: str) -> None:
    gateway = start_gateway({f"websocket.{key}": "1.5"})
    with WebSocket(gateway.port) as busy:
        busy.create(held.model)
        await_begun(busy, {None})
        expect_idle_end(gateway, well, key)
        busy.ping(b"still here")
        busy.await_pong(b"still here")
        held.release.set()
        expect_sound(busy.events_until_terminal())


def expect_idle_end(gateway: Gateway, well: str, key: str) -> None:
    with WebSocket(gateway.port) as silent:
        if key == "idle_timeout_seconds":
            told(silent, well)
        closing_frame = silent.await_close()
        assert (closing_frame.close_code, closing_frame.reason) == (1000, "idle")


# ---------------------------------------------------------------- ends by size


@pytest.mark.parametrize("pieces", [1, 3], ids=["one frame", "in pieces"])
def test_a_message_too_large(start_gateway: Callable[..., Gateway], upstream: Upstream, well: str, pieces: int) -> None:
    gateway = start_gateway({"websocket.max_message_bytes": "64KiB"})
    bare = len(b'{"type":"response.create","model":"life well","input":""}')

    def message(size: int) -> list[bytes]:
        text = b'{"type":"response.create","model":"life well","input":"%b"}' % (b"x" * (size - bare))
        assert len(text) == size
        step = -(-size // pieces)
        return [text[at : at + step] for at in range(0, size, step)]

    with WebSocket(gateway.port) as socket:
        socket.send_text(*message(64 * KIB))
        expect_sound(socket.events_until_terminal())
        calls = len(upstream.calls(well))
        with suppress(ConnectionError):
            socket.send_text(*message(64 * KIB + 1))
        assert socket.await_close().close_code == 1009
        (event,) = socket.unread
        expect_error(event, "request_too_large", status=413)
        assert "max_message_bytes" in event["error"]["message"]
    assert len(upstream.calls(well)) == calls


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        pytest.param(b"\x81\x82\x00\x00\x00\x00\xff\xff", 1007, id="text that is no UTF-8"),
        pytest.param(b"\x83\x80\x00\x00\x00\x00", 1002, id="a reserved opcode"),
    ],
)
def test_what_is_no_websocket_ends_it(gateway: Gateway, raw: bytes, code: int) -> None:
    with WebSocket(gateway.port) as socket:
        socket.send_raw(raw)
        assert socket.await_close().close_code == code


# ---------------------------------------------------------------- many


def test_connections_are_counted(start_gateway: Callable[..., Gateway], well: str) -> None:
    gateway = start_gateway({"websocket.max_connections": "2"})
    expect_full(gateway, well, 503)


def test_the_connections_of_one_caller_are_counted(start_gateway: Callable[..., Gateway], well: str) -> None:
    gateway = start_gateway({"websocket.max_connections_per_principal": "2"})
    expect_full(gateway, well, 429)


def expect_full(gateway: Gateway, model: str, status: int) -> None:
    """A third connection is refused before it is one, and welcome when another has gone."""
    with WebSocket(gateway.port) as one:
        with WebSocket(gateway.port) as other:
            with pytest.raises(HandshakeRefused) as refusal:
                WebSocket(gateway.port)
            assert refusal.value.answer.status == status
            assert refusal.value.answer.error["code"]
            assert status == 429 or refusal.value.answer.headers["retry-after"]
            assert create(gateway.port, {"model": model, "input": "hi"}).status == 200
            told(one, model)
            told(other, model)
        deadline = time.monotonic() + 20
        while True:
            try:
                with WebSocket(gateway.port) as third:
                    told(third, model)
                return
            except HandshakeRefused:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_two_connections_share_nothing(gateway: Gateway, well: str, held: Held) -> None:
    with WebSocket(gateway.port) as one, WebSocket(gateway.port) as other:
        one.create(held.model, stream_id="a")
        await_begun(one, {"a"})
        assert id_of(ask(other, well, stream_id="a")) != one.unread[0]["response"]["id"]
        other.expect_silence(0.1)
        held.release.set()
        expect_sound(one.events_until_terminal("a"), "a")
