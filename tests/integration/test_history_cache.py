"""What a chain costs the database, turn by turn, and what two gateways on one database make of deletions."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from harness.client import client
from harness.engine import Answer, says
from harness.upstream import Upstream
from integration.databases import CountedGateway

TURNS = 40
OpenGateway = Callable[..., "ChainGateway"]


class ChainGateway(CountedGateway):
    """A gateway on which chains are made."""

    def ask(self, model: str, given: Any, parent: str | None = None, **members: Any) -> Any:
        with client(self.port) as caller:
            return caller.create({"model": model, "input": given, "previous_response_id": parent, **members})

    def told(self, model: str, given: Any, parent: str | None = None, **members: Any) -> str:
        answer = self.ask(model, given, parent, **members)
        assert answer.status == 200, answer.body
        return answer.json["id"]

    def delete(self, response_id: str) -> int:
        with client(self.port) as caller:
            return caller.call("DELETE", f"/v1/responses/{response_id}").status


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/responses.db"
    return request.getfixturevalue("postgres_database")


@pytest.fixture
def open_gateway(upstream: Upstream, database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OpenGateway]:
    """Starts gateways on one database."""
    with ExitStack() as running:

        def open_one(**settings: str) -> ChainGateway:
            chosen = {f"storage.{key}": value for key, value in settings.items()}
            gateway = ChainGateway(tmp_path_factory.mktemp("counted"), upstream.url, database, chosen)
            return running.enter_context(gateway)

        yield open_one


def run_chain(gateway: ChainGateway, model: str, turns: int, parent: str | None = None) -> str:
    """Make a chain of streamed and plain responses and return the id of the last one."""
    with client(gateway.port) as caller:
        for turn in range(turns):
            body = {"model": model, "input": f"q{turn}", "previous_response_id": parent, "stream": turn % 2 == 0}
            answer = caller.create(body)
            assert answer.status == 200, answer.body
            parent = (answer.final if turn % 2 == 0 else answer.json)["id"]
    assert parent is not None
    return parent


@pytest.mark.checklist(45)
@pytest.mark.parametrize(
    ("settings", "reads"),
    [
        pytest.param({"history_revalidate_seconds": "3600"}, {}, id="inside the period"),
        pytest.param({"history_revalidate_seconds": "0"}, {"liveness": TURNS - 1}, id="always stale"),
        pytest.param({"history_cache_bytes": "0"}, {"history": TURNS - 1}, id="off"),
    ],
)
def test_what_forty_turns_ask(
    open_gateway: OpenGateway, upstream: Upstream, database: str, settings: dict[str, str], reads: dict[str, int]
) -> None:
    gateway = open_gateway(**settings)
    model = upstream.script(f"forty {settings} {database}", says("an answer"))
    run_chain(gateway, model, TURNS)
    assert gateway.reads() == reads
    assert len(upstream.calls(model)[-1].body["input"]) == 2 * (TURNS - 1) + 1
    assert gateway.rows(model) == TURNS


def test_after_a_restart_the_chain_is_read_once(open_gateway: OpenGateway, upstream: Upstream, database: str) -> None:
    gateway = open_gateway(history_revalidate_seconds="3600")
    model = upstream.script(f"cold {database}", says("an answer"))
    parent = run_chain(gateway, model, 5)
    gateway.stop()
    gateway.start("/livez")
    run_chain(gateway, model, 5, parent)
    assert gateway.reads() == {"history": 1}
    assert len(upstream.calls(model)[-1].body["input"]) == 2 * 9 + 1


def texts(upstream: Upstream, model: str) -> list[str]:
    """What the model was shown last."""
    given = upstream.calls(model)[-1].body["input"]
    contents = [item["content"] for item in ([{"content": given}] if isinstance(given, str) else given)]
    return [content if isinstance(content, str) else content[0]["text"] for content in contents]


def refused(answer: Any) -> bool:
    return answer.status == 400 and answer.error["code"] == "previous_response_not_found"


def test_a_deletion_elsewhere_inside_the_period_and_after_it(
    open_gateway: OpenGateway, upstream: Upstream, database: str
) -> None:
    one = open_gateway(history_revalidate_seconds="0")
    other = open_gateway(history_revalidate_seconds="3600")
    model = upstream.script(f"elsewhere {database}", says("a"))
    parent = other.told(model, "q1")
    child = other.told(model, "q2", parent)
    assert one.delete(parent) == 200
    # Where it was deleted it cannot be continued any more, and nobody can read it.
    assert refused(one.ask(model, "no", parent))
    with client(other.port) as caller:
        assert caller.get(f"/v1/responses/{parent}").status == 404
    # The other process still has its history, for the period; what it makes from it is stored like anything else.
    late = other.told(model, "late", parent)
    assert texts(upstream, model) == ["q1", "a", "late"]
    # Its child goes on in both, with all it was made from.
    for gateway in (one, other):
        gateway.told(model, "on", child)
        assert texts(upstream, model) == ["q1", "a", "q2", "a", "on"]
        gateway.told(model, "on", late)
        assert texts(upstream, model) == ["q1", "a", "late", "a", "on"]


def test_a_deletion_elsewhere_is_seen_once_the_period_is_over(
    open_gateway: OpenGateway, upstream: Upstream, database: str
) -> None:
    one, other = open_gateway(), open_gateway(history_revalidate_seconds="0")
    model = upstream.script(f"over {database}", says("a"))
    parent = other.told(model, "q1")
    other.told(model, "q2", parent)
    assert one.delete(parent) == 200
    calls = len(upstream.calls(model))
    assert refused(other.ask(model, "no", parent))
    assert refused(other.ask(model, "no", parent))
    assert other.delete(parent) == 404
    assert len(upstream.calls(model)) == calls


def test_forks_of_a_deleted_response_go_on_and_share_its_items(
    open_gateway: OpenGateway, upstream: Upstream, database: str
) -> None:
    one, other = open_gateway(), open_gateway()
    answer = Answer(says("root").items)
    model = upstream.script(f"forks {database}", answer)
    root = one.told(model, "q")
    left, right = one.told(model, "left", root), other.told(model, "right", root)
    assert one.delete(root) == 200
    assert other.delete(left) == 200
    assert refused(one.ask(model, "no", root))
    other.told(model, "on", right)
    assert texts(upstream, model) == ["q", "root", "right", "root", "on"]
    # Every item is stored once, whoever replays it.
    stored = one.query(f"SELECT count(*) FROM items WHERE response_id = '{root}'")
    assert [tuple(row) for row in stored] == [(2,)]
