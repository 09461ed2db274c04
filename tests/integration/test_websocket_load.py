"""Whatever WebSockets are sent, and however they end, nothing breaks and nothing stays behind."""

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.frames import Event
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration import fuzzing, visits
from integration.fuzzing import Listener, read_documented_codes
from integration.mutations import MAX_MESSAGE_BYTES, draw_breach, draw_message, draw_noise
from integration.turns import Held, await_begun
from integration.watched import WatchedGateway

FRAMES = 2000
CONNECTIONS = 300
GOOD: Event = {
    "type": "error",
    "status": 400,
    "error": {"type": "invalid_request_error", "code": "invalid_json", "message": "no", "param": None},
}


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """One of the test's own: connections of other gateways must not count."""
    with Upstream() as running:
        yield running


# ---------------------------------------------------------------- anything at all


@pytest.mark.checklist(18, 62)
def test_whatever_is_sent_is_answered_and_leaves_nothing_behind(tmp_path: Path, upstream: Upstream) -> None:
    with WatchedGateway(tmp_path, upstream, fuzzing.SETTINGS) as gateway:
        report = fuzzing.Campaign(gateway, upstream, [FRAMES], seed=2000).run()
    assert report.broken == []
    assert report.sent.total() >= FRAMES
    assert report.served > 0
    # It was no monologue: every kind of fault was met, and found one by one.
    assert {"invalid_json", "unsupported_event", "invalid_type", "request_too_large"} <= set(report.errors)
    assert {1000, 1002, 1007, 1009} <= set(report.closes)
    assert "frames and messages" in str(report)


def test_a_seed_brings_the_same_frames_again() -> None:
    def draw(seed: int) -> list[bytes]:
        source = random.Random(seed)
        return [make(source).data for _ in range(50) for make in (draw_message, draw_breach, draw_noise)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_messages_are_such_as_a_connection_lives_through() -> None:
    source = random.Random(3)
    for _ in range(3000):
        sent = draw_message(source)
        assert len(sent.data) < MAX_MESSAGE_BYTES, sent.kind
        assert sent.answers == (sent.kind not in ("processed", "ping or pong")), sent.kind


def test_the_documented_codes_are_those_of_the_documentation() -> None:
    assert {"invalid_json", "server_error", "websocket_stream_limit_reached"} <= read_documented_codes()


@pytest.mark.parametrize(
    "event",
    [
        pytest.param({**GOOD, "status": 200}, id="no error's status"),
        pytest.param({**GOOD, "status": "400"}, id="a status that is no number"),
        pytest.param({**GOOD, "more": 1}, id="a member more"),
        pytest.param({**GOOD, "stream_id": "a b"}, id="a lane that cannot be"),
        pytest.param({**GOOD, "event_id": 1}, id="an event id that cannot be"),
        pytest.param({**GOOD, "error": {**GOOD["error"], "code": "surprise"}}, id="a code nobody documents"),
        pytest.param({**GOOD, "error": {**GOOD["error"], "code": "server_error"}}, id="a fault of the gateway"),
        pytest.param({**GOOD, "error": {**GOOD["error"], "message": ""}}, id="no message"),
        pytest.param({**GOOD, "error": {**GOOD["error"], "param": 1}}, id="a param that is no name"),
        pytest.param({"type": "error", "status": 400}, id="no error"),
        pytest.param({"type": "response.in_progress", "sequence_number": 1}, id="an event before the first"),
        pytest.param({"type": "response.created", "sequence_number": 1}, id="a first event that is not the first"),
        pytest.param({"type": "surprise", "sequence_number": 0}, id="an event of another type"),
        pytest.param({"type": "response.failed", "sequence_number": 0}, id="a response that failed"),
    ],
)
def test_what_is_not_as_documented_is_noticed(event: Event) -> None:
    listener = Listener(read_documented_codes())
    listener.hear(GOOD)
    listener.hear({**GOOD, "stream_id": "a", "event_id": "1"})
    assert listener.faults == []
    listener.hear(event)
    assert len(listener.faults) == 1


def test_a_turn_as_it_should_be_is_no_fault() -> None:
    listener = Listener(read_documented_codes())
    for lane in ("a", "b"):
        listener.hear({"type": "response.created", "sequence_number": 0, "stream_id": lane})
    for number in (1, 2):
        for lane in ("a", "b"):
            listener.hear({"type": "response.in_progress", "sequence_number": number, "stream_id": lane})
    for lane in ("a", "b"):
        listener.hear({"type": "response.completed", "sequence_number": 3, "stream_id": lane})
    assert listener.faults == []
    assert listener.ends == 2


# ---------------------------------------------------------------- connections that end


@pytest.mark.checklist(18, 25)
def test_however_connections_end_nothing_stays_behind(tmp_path: Path, upstream: Upstream) -> None:
    with WatchedGateway(tmp_path, upstream, visits.SETTINGS) as gateway:
        report = visits.Campaign(gateway, upstream, [CONNECTIONS // 3, CONNECTIONS], seed=300).run()
        left = gateway.count("gateway_websocket_closes_total", 'by="client",code="1006"')
        assert left > CONNECTIONS / 10
        assert gateway.count("gateway_websocket_closes_total") > left + CONNECTIONS / 10
    assert report.broken == []
    assert report.aborts.total() == CONNECTIONS
    assert set(report.aborts) == set(visits.MOMENTS)
    # Many of them were being served when they were left.
    assert len(upstream.requests) > CONNECTIONS / 4


def test_what_a_websocket_holds_is_noticed(tmp_path: Path, upstream: Upstream) -> None:
    held = Held(upstream, "held")
    with WatchedGateway(tmp_path, upstream) as gateway:
        idle = gateway.rest()
        with WebSocket(gateway.port) as connection:
            for _ in range(2):
                connection.create(held.model, store=False)
            await_begun(connection, {None})
            found = gateway.rest().beyond(idle)
            assert found["gateway_websocket_connections"] == 1
            assert found["gateway_websocket_creates_running"] == 1
            assert found["gateway_websocket_creates_waiting"] == 1
            assert found["gateway_websocket_outstanding_bytes"] > 100
            assert found["gateway_active_responses"] == found["upstream calls"] == 1
            held.release.set()
            for _ in range(2):
                connection.events_until_terminal()
            assert gateway.rest().beyond(idle)["gateway_websocket_session_bytes"] > 0
        assert gateway.settle(idle) == {}
