"""The caller on a WebSocket, against a server that answers as it should and as it should not.

The caller's library comes with the extra `load`.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from harness.engine import says
from measure import Turn
from websockets.sync.server import ServerConnection, serve
from witness import Witness

pytestmark = pytest.mark.full
Script = Callable[[ServerConnection, dict[str, Any]], None]


def answer(connection: ServerConnection, asked: dict[str, Any], changes: Callable[[dict], dict] = dict) -> None:
    """Tell the events of an answer that quotes the request."""
    lane = {"stream_id": asked["stream_id"]} if "stream_id" in asked else {}
    for event in says(f"You said {asked['input']}.").events():
        connection.send(json.dumps(changes({**event, **lane})))


@contextmanager
def serving(script: Script, **options: Any) -> Iterator[str]:
    def talk(connection: ServerConnection) -> None:
        for message in connection:
            script(connection, json.loads(message))

    with serve(talk, "127.0.0.1", 0, **options) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.socket.getsockname()[1]}"
        server.shutdown()
        thread.join()


def ask(url: str, *lanes: str | None, timeout: float = 20.0) -> list[Turn]:
    """Ask once on each lane, all at once, and return the turns as they ended."""
    from socket_caller import SocketCaller

    caller = SocketCaller(url, {"authorization": "Bearer sk-test"}, timeout)
    try:
        for number, lane in enumerate(lanes):
            caller.ask({"input": f"turn {number}"}, Witness("lanes", lane, [f"turn {number}"]))
        return [caller.wait().finish() for _ in lanes]
    finally:
        caller.close()


def test_lanes_are_told_apart() -> None:
    asked: list[dict[str, Any]] = []

    def answer_backwards(connection: ServerConnection, frame: dict[str, Any]) -> None:
        asked.append(frame)
        if len(asked) == 3:
            for earlier in reversed(asked):
                answer(connection, earlier)

    with serving(answer_backwards) as url:
        turns = ask(url, None, "left", "right")
    assert [turn.outcome for turn in turns] == ["ok"] * 3
    assert all(0 < turn.ack <= turn.ttft <= turn.e2e for turn in turns)
    assert [frame.get("stream_id") for frame in asked] == [None, "left", "right"]
    assert {frame["type"] for frame in asked} == {"response.create"}


def test_the_key_is_sent_with_the_upgrade() -> None:
    seen = []

    def look(connection: ServerConnection, frame: dict[str, Any]) -> None:
        seen.append(connection.request.headers["authorization"])
        answer(connection, frame)

    with serving(look) as url:
        ask(url, None)
    assert seen == ["Bearer sk-test"]


def rename(connection: ServerConnection, asked: dict[str, Any]) -> None:
    answer(connection, asked, lambda event: {**event, "stream_id": "elsewhere"})


def leave_out_the_name(connection: ServerConnection, asked: dict[str, Any]) -> None:
    answer(connection, asked, lambda event: {name: value for name, value in event.items() if name != "stream_id"})


def miscount(connection: ServerConnection, asked: dict[str, Any]) -> None:
    answer(connection, asked, lambda event: {**event, "sequence_number": event["sequence_number"] * 2})


def close(connection: ServerConnection, asked: dict[str, Any]) -> None:
    connection.send(json.dumps({"type": "response.created", "sequence_number": 0, "stream_id": "left"}))
    connection.close()


def keep_silent(connection: ServerConnection, asked: dict[str, Any]) -> None: ...


def refuse(connection: ServerConnection, asked: dict[str, Any]) -> None:
    frame = {"type": "error", "stream_id": "left", "status": 429, "error": {"code": "rate_limit_exceeded"}}
    connection.send(json.dumps(frame))


def talk_rubbish(connection: ServerConnection, asked: dict[str, Any]) -> None:
    connection.send("{nonsense")


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        (rename, "wrong stream_id"),
        (leave_out_the_name, "wrong stream_id"),
        (miscount, "sequence gap"),
        (close, "connection"),
        (keep_silent, "timeout"),
        (refuse, "the response failed"),
        (talk_rubbish, "unreadable event"),
    ],
)
def test_what_fails(script: Script, fault: str) -> None:
    with serving(script) as url:
        (turn,) = ask(url, "left", timeout=0.5 if fault == "timeout" else 20.0)
    assert (turn.outcome, turn.fault) == ("failed", fault)


def test_whatever_ends_the_connection_fails_every_lane() -> None:
    with serving(rename) as url:
        assert [turn.fault for turn in ask(url, "left", "right")] == ["wrong stream_id"] * 2


def test_a_lane_that_stalls_fails_although_another_is_busy() -> None:
    def stall_one(connection: ServerConnection, asked: dict[str, Any]) -> None:
        if asked["stream_id"] == "busy":
            told = 0
            while connection.protocol.state.name == "OPEN" and told < 100:
                event = {"type": "response.in_progress", "sequence_number": told, "stream_id": "busy"}
                connection.send(json.dumps(event))
                told += 1
                threading.Event().wait(0.02)

    with serving(stall_one) as url:
        assert [turn.fault for turn in ask(url, "stalled", "busy", timeout=0.3)] == ["timeout"] * 2


def test_a_refused_upgrade_tells_its_status() -> None:
    def refuse_upgrade(connection: ServerConnection, request: Any) -> Any:
        return connection.respond(401, "Send a valid key.")

    with serving(answer, process_request=refuse_upgrade) as url:
        (turn,) = ask(url, None)
    assert (turn.fault, turn.detail) == ("wrong status", "401: Send a valid key.")


def test_nobody_listens() -> None:
    with serving(answer) as url:
        pass
    assert [turn.fault for turn in ask(url, None)] == ["connection"]
