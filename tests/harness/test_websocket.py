"""The WebSocket caller against a server it shares no code with: what it says about frames must be so."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

import pytest
from harness.client import Answer
from harness.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    by_lane,
    by_response,
    decode_frame,
    encode_frame,
)
from harness.websocket import ConnectionEnded, HandshakeRefused, WebSocket
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame as OtherFrame
from websockets.frames import Opcode
from websockets.streams import StreamReader
from websockets.sync.server import Request, Response, Server, ServerConnection, serve

MASK = b"\x01\xfe\x37\x80"
SIZES = [0, 1, 125, 126, 127, 65535, 65536, 200_003]
LANES = ("a", None, "b")


def respond(connection: ServerConnection) -> None:
    """Do what each message asks for."""
    try:
        for message in connection:
            if isinstance(message, bytes):
                connection.send(message)
                continue
            asked = json.loads(message)
            if asked["type"] == "response.create":
                tell_turn(connection, asked.get("stream_id"))
            elif asked["type"] == "ping":
                pong = connection.ping("are you there")
                connection.send(json.dumps({"type": "alive" if pong.wait(asked["seconds"]) else "mute"}))
            elif asked["type"] == "close":
                connection.close(1001, "going away")
            else:
                connection.send(json.dumps({"type": "echo", "length": len(message)}))
    except ConnectionClosed:
        pass


def tell_turn(connection: ServerConnection, lane: str | None) -> None:
    """Answer as the gateway would, but for what the events hold."""
    tag = {} if lane is None else {"stream_id": lane}
    response = {"response": {"id": f"resp_{lane}"}}
    for event in (
        {"type": "response.created", **response},
        {"type": "x.delta"},
        {"type": "response.completed", **response},
    ):
        connection.send(json.dumps({**event, **tag}))


def refuse(connection: ServerConnection, request: Request) -> Response | None:
    return connection.respond(426, "not here\n") if "refused" in request.path else None


@contextmanager
def serving(handler: Callable[[ServerConnection], None]) -> Iterator[int]:
    with serve(handler, "127.0.0.1", 0, process_request=refuse, compression=None, max_size=None) as server:
        thread = Thread(target=run, args=(server,))
        thread.start()
        yield server.socket.getsockname()[1]
        server.shutdown()
        thread.join()


def run(server: Server) -> None:
    server.serve_forever()


@pytest.fixture
def port() -> Iterator[int]:
    with serving(respond) as running:
        yield running


@pytest.fixture
def caller(port: int) -> Iterator[WebSocket]:
    with WebSocket(port) as running:
        yield running


# ---------------------------------------------------------------- the codec


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("final", [True, False])
def test_frames_are_written_as_the_library_writes_them(size: int, final: bool) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    frame = OtherFrame(Opcode.TEXT, payload[:size], fin=final)
    assert encode_frame(TEXT, payload[:size], final=final) == frame.serialize(mask=False)
    assert decode_frame(frame.serialize(mask=False)) == (TEXT, payload[:size], final, len(frame.serialize(mask=False)))


@pytest.mark.parametrize("size", SIZES)
def test_the_library_reads_what_is_masked(size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    stream = StreamReader()
    stream.feed_data(encode_frame(BINARY, payload[:size], mask=MASK))
    parsing = OtherFrame.parse(stream.read_exact, mask=True)
    with pytest.raises(StopIteration) as parsed:
        next(parsing)
    assert parsed.value.value.data == payload[:size]
    assert parsed.value.value.opcode is Opcode.BINARY


def test_half_a_frame_is_none() -> None:
    whole = encode_frame(TEXT, b"x" * 70_000)
    assert [decode_frame(whole[:size]) for size in (0, 1, 5, 9, 10, len(whole) - 1)] == [None] * 6


@pytest.mark.parametrize("first", [bytes([0x81, 0x81]), bytes([0xC1, 1])], ids=["masked", "compressed"])
def test_what_a_server_must_not_send_is_noticed(first: bytes) -> None:
    with pytest.raises(AssertionError):
        decode_frame(first + b"12345")


# ---------------------------------------------------------------- the caller


def test_large_and_fragmented_messages_arrive(caller: WebSocket) -> None:
    text = json.dumps({"type": "x", "padding": "ü" * 1_000_000}).encode()
    caller.send_text(text)
    caller.send_text(text[:1], text[1:70_000], text[70_000:])
    assert [caller.next_event() for _ in range(2)] == [{"type": "echo", "length": len(text)}] * 2
    caller.send_frame(BINARY, text)
    assert (caller.next_frame().opcode, caller.frames[-1].payload) == (BINARY, text)


def test_a_refused_upgrade_brings_the_answer(port: int) -> None:
    with pytest.raises(HandshakeRefused, match="426") as refused:
        WebSocket(port, "/refused")
    assert refused.value.answer.status == 426
    assert refused.value.answer.body == b"not here\n"
    assert isinstance(refused.value.answer, Answer)


def test_lanes_are_told_apart(caller: WebSocket) -> None:
    for lane in LANES:
        caller.create("m", **({} if lane is None else {"stream_id": lane}))
    kinds = ["response.created", "x.delta", "response.completed"]
    assert [event["type"] for event in caller.events_until_terminal("b")] == kinds
    assert [event.get("stream_id") for event in caller.unread] == ["a"] * 3 + [None] * 3
    assert [event["type"] for event in caller.events_until_terminal()] == kinds
    caller.create("m", stream_id="c")
    events = caller.events_of(2)
    assert list(by_lane(events)) == ["a", "c"]
    assert {id_: len(of_one) for id_, of_one in by_response(events).items()} == {"resp_a": 3, "resp_c": 3}


def test_silence_is_told_from_an_event(caller: WebSocket) -> None:
    caller.expect_silence(0.05)
    caller.create("m")
    with pytest.raises(AssertionError, match=r"response\.created"):
        caller.expect_silence(5)
    with pytest.raises(TimeoutError):
        caller.events_until_terminal("nobody", timeout=0.05)
    assert [event["type"] for event in caller.unread] == ["x.delta", "response.completed"]
    assert [event["type"] for event in caller.events_until_terminal(timeout=0)] == ["x.delta", "response.completed"]


def test_pings_go_both_ways(caller: WebSocket) -> None:
    caller.create("m")
    caller.ping(b"hello")
    caller.await_pong(b"hello")
    # Events on the way to the pong are kept; how many there are is the server's matter.
    kinds = [caller.next_event()["type"] for _ in range(3)]
    assert kinds[0] == "response.created"
    caller.send({"type": "ping", "seconds": 5})
    assert caller.next_event() == {"type": "alive"}
    caller.answers_pings = False
    caller.send({"type": "ping", "seconds": 0.05})
    assert caller.next_event() == {"type": "mute"}
    assert [frame.opcode for frame in caller.frames].count(PING) == 2


def test_a_close_is_the_last_frame(caller: WebSocket) -> None:
    started = time.monotonic()
    caller.send({"type": "close"})
    closing = caller.await_close()
    assert (closing.opcode, closing.close_code, closing.reason) == (CLOSE, 1001, "going away")
    assert started <= closing.at <= time.monotonic()
    with pytest.raises(ConnectionEnded):
        caller.next_frame()


@pytest.mark.parametrize(
    "behind", [encode_frame(TEXT, b"{}"), encode_frame(CLOSE, b"\x03\xe8"), b""], ids=["an event", "a second", "alone"]
)
def test_what_follows_a_close_is_noticed(behind: bytes) -> None:
    def close(connection: ServerConnection) -> None:
        connection.socket.sendall(encode_frame(CLOSE, b"\x03\xe8") + behind)
        connection.socket.close()

    with serving(close) as port, WebSocket(port) as caller:
        caller.answers_close = False
        if behind:
            with pytest.raises(AssertionError):
                caller.await_close()
        else:
            assert caller.await_close().close_code == 1000


def test_a_closed_connection_is_no_event(caller: WebSocket) -> None:
    caller.send({"type": "close"})
    with pytest.raises(AssertionError, match="closed with 1001 'going away'"):
        caller.next_event()


def test_what_is_no_event_is_noticed() -> None:
    def send(connection: ServerConnection) -> None:
        for frame in (b"[]", b'{"type":7}', b'data: {"type":"x"}'):
            connection.send(frame, text=True)

    with serving(send) as port, WebSocket(port) as caller:
        for _ in range(3):
            with pytest.raises((AssertionError, ValueError)):
                caller.next_event()


def test_a_client_may_vanish() -> None:
    ends: list[int] = []

    def note(connection: ServerConnection) -> None:
        try:
            connection.recv()
        except ConnectionClosed as closed:
            ends.append(closed.rcvd.code if closed.rcvd else 1006)

    with serving(note) as port:
        for way in (WebSocket.close, WebSocket.leave, WebSocket.reset, WebSocket.half_close):
            with WebSocket(port) as caller:
                way(caller)
                if way is WebSocket.close:
                    caller.await_close()
        deadline = time.monotonic() + 20
        while len(ends) < 4 and time.monotonic() < deadline:
            time.sleep(0.01)
    assert sorted(ends) == [1000, 1006, 1006, 1006]


def test_frames_of_every_kind_can_be_sent_wrong() -> None:
    def note(connection: ServerConnection) -> None:
        with pytest.raises(ConnectionClosed):
            connection.recv()

    with serving(note) as port, WebSocket(port) as caller:
        caller.send_frame(CONTINUATION, b"of nothing")
        assert caller.await_close().close_code == 1002
    with serving(note) as port, WebSocket(port) as caller:
        caller.send_raw(encode_frame(PONG, b"unmasked"))
        assert caller.await_close().close_code == 1002
