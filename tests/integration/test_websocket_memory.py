"""What a connection's memory costs and how it is bounded: questions to the database, checkpoints, row 52."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.client import client
from harness.engine import says
from harness.processes import Gateway
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration.test_history_cache import CountedGateway
from integration.turns import (
    LIMIT_CODE,
    ask,
    echo,
    expect_failed,
    expect_sound,
    final,
    id_of,
    refused,
    texts_sent,
    told,
)

TURNS = 40
# Nothing but the connection itself remembers anything.
FORGETFUL = {"storage.history_cache_bytes": "0", "storage.history_revalidate_seconds": "0"}
BOUNDS = {
    "max_checkpoint_bytes": {"websocket.max_checkpoint_bytes": "16KiB"},
    "max_checkpoint_items": {"websocket.max_checkpoint_items": "4"},
    "max_session_bytes": {"websocket.max_session_bytes": "16KiB"},
}


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def counted(request: pytest.FixtureRequest, tmp_path: Path, upstream: Upstream) -> Iterator[CountedGateway]:
    """A gateway without a cache of histories, whose questions to the database are counted, on each database."""
    database = f"sqlite:///{tmp_path}/responses.db"
    if request.param == "postgres":
        database = request.getfixturevalue("postgres_database")
    with CountedGateway(tmp_path, upstream.url, database, FORGETFUL) as running:
        yield running


@pytest.mark.checklist(45)
@pytest.mark.parametrize("store", [True, False])
def test_a_chain_asks_the_database_nothing(
    counted: CountedGateway, upstream: Upstream, store: bool, request: pytest.FixtureRequest
) -> None:
    model = upstream.script(request.node.name, echo)
    with WebSocket(counted.port) as socket:
        parent = None
        for turn in range(TURNS):
            parent = told(socket, model, f"q{turn}", parent, store=store)
    assert len(texts_sent(upstream, model)) == 2 * (TURNS - 1) + 1
    assert counted.reads() == {}
    assert counted.rows(model) == (TURNS if store else 0)
    items = counted.query("SELECT count(*) FROM items")[0][0]
    assert items == (2 * TURNS if store else 0)


@pytest.mark.checklist(45, 46)
def test_only_what_the_connection_does_not_know_is_asked_for(
    counted: CountedGateway, upstream: Upstream, request: pytest.FixtureRequest
) -> None:
    model = upstream.script(request.node.name, echo)
    with WebSocket(counted.port) as socket:
        first = told(socket, model, "q1")
        second = told(socket, model, "q2", first)
        told(socket, model, "fork", second, stream_id="a")
        assert counted.reads() == {}
        told(socket, model, "older", first)
        assert counted.reads() == {"history": 1}
    with WebSocket(counted.port) as socket:
        told(socket, model, "elsewhere", second)
        assert counted.reads() == {"history": 2}


def test_a_deleted_response_is_not_continued_elsewhere(gateway: Gateway, upstream: Upstream) -> None:
    model = upstream.script("ws deleted", echo)
    with WebSocket(gateway.port) as socket, WebSocket(gateway.port) as other:
        parent = told(socket, model, "q1")
        with client(gateway.port) as caller:
            assert caller.call("DELETE", f"/v1/responses/{parent}").status == 200
        refused(other, model, parent)


# ---------------------------------------------------------------- row 52: bounds of checkpoints


@pytest.fixture(params=list(BOUNDS))
def bound(request: pytest.FixtureRequest) -> str:
    """The key of one bound of checkpoints."""
    return str(request.param)


@pytest.fixture
def bounded(start_gateway: Callable[..., Gateway], bound: str) -> Gateway:
    """A gateway in which only this bound is small."""
    return start_gateway(BOUNDS[bound])


def beyond(bound: str) -> list[dict[str, object]]:
    """An input whose response goes beyond the bound."""
    if bound == "max_checkpoint_items":
        return [{"role": "user", "content": f"item {number}"} for number in range(4)]
    return [{"role": "user", "content": "x" * 20_000}]


@pytest.mark.checklist(52)
def test_an_unstored_response_beyond_it_fails(bounded: Gateway, bound: str, upstream: Upstream) -> None:
    model = upstream.script(f"ws {bound}", says("ok"))
    with WebSocket(bounded.port) as socket:
        fine = told(socket, model, store=False, stream_id="fine")
        events = ask(socket, model, beyond(bound), store=False, stream_id="a")
        expect_failed(events, LIMIT_CODE, "a")
        assert bound in final(events)["error"]["message"]
        refused(socket, model, id_of(events), stream_id="a")
        told(socket, model, "on", fine, store=False, stream_id="fine")
        told(socket, model, store=False, stream_id="a")
    assert bounded.rows() == 0


@pytest.mark.checklist(52)
def test_a_stored_response_beyond_it_is_continued_from_storage(
    bounded: Gateway, bound: str, upstream: Upstream
) -> None:
    model = upstream.script(f"ws {bound} stored", says("ok"))
    with WebSocket(bounded.port) as socket:
        events = ask(socket, model, beyond(bound))
        expect_sound(events)
        told(socket, model, "on", id_of(events))
    assert len(texts_sent(upstream, model)) == len(beyond(bound)) + 2
    assert bounded.rows(model) == 2


@pytest.mark.checklist(52)
def test_lanes_share_the_bound_of_the_connection(start_gateway: Callable[..., Gateway], upstream: Upstream) -> None:
    gateway = start_gateway({"websocket.max_session_bytes": "16KiB"})
    model = upstream.script("ws session bytes", says("ok"))
    with WebSocket(gateway.port) as socket, WebSocket(gateway.port) as other:
        kept = [told(socket, model, "x" * 5000, store=False, stream_id=f"lane{number}") for number in range(2)]
        outcomes = [ask(socket, model, "x" * 5000, store=False, stream_id=f"more{number}") for number in range(4)]
        failed = [events for events in outcomes if events[-1]["type"] == "response.failed"]
        assert failed
        for events in failed:
            assert "max_session_bytes" in final(events)["error"]["message"]
        for number, parent in enumerate(kept):
            told(socket, model, "on", parent, stream_id=f"lane{number}")
        told(other, model, "x" * 5000, store=False)


@pytest.mark.checklist(52)
def test_a_thousand_turns_are_forgotten_one_by_one(start_gateway: Callable[..., Gateway], upstream: Upstream) -> None:
    """Independent turns of 10 KB would need a hundred times the bound together."""
    gateway = start_gateway({"websocket.max_session_bytes": "96KiB", "telemetry.log_level": "warning"})
    model = upstream.script("ws thousand", says("y" * 2000, 2000))
    with WebSocket(gateway.port) as socket:
        for _ in range(1000):
            socket.create(model, "x" * 8000, store=False)
            assert socket.events_until_terminal()[-1]["type"] == "response.completed"
            socket.frames.clear()
