"""Conversations in front of two gateways on one PostgreSQL, over HTTP and WebSockets."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from harness.client import Answer, client
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration.databases import DatabaseGateway
from integration.turns import Held, echo

pytestmark = pytest.mark.postgres
LEASE_SECONDS = 2.0
Json = dict[str, Any]


class Site:
    """Two gateways that share everything but their memory, and a conversation."""

    def __init__(self, replicas: list[DatabaseGateway], upstream: Upstream) -> None:
        self.one, self.other = replicas
        self.upstream = upstream
        self.model = upstream.script("conversations echo", echo)
        self.id = self.ask(self.one, "POST", "/v1/conversations", {}).json["id"]

    def ask(self, gateway: DatabaseGateway, method: str, path: str, body: Json | None = None) -> Answer:
        with client(gateway.port) as caller:
            return caller.call(method, path, None if body is None else json.dumps(body).encode())

    def create(self, gateway: DatabaseGateway, given: str, model: str | None = None, **fields: Any) -> Answer:
        body = {"model": model or self.model, "input": given, "conversation": self.id, **fields}
        return self.ask(gateway, "POST", "/v1/responses", body)

    def create_on_socket(self, gateway: DatabaseGateway, given: str, **fields: Any) -> Json:
        with WebSocket(gateway.port) as socket:
            socket.create(self.model, given, conversation=self.id, **fields)
            return socket.events_until_terminal()[-1]

    def texts(self, gateway: DatabaseGateway) -> list[str]:
        path = f"/v1/conversations/{self.id}/items?order=asc&limit=100"
        return [item["content"][0]["text"] for item in self.ask(gateway, "GET", path).json["data"]]


@pytest.fixture(scope="module")
def replicas(
    postgres_server: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[list[DatabaseGateway], Upstream]]:
    database = postgres_server.create_database()
    settings = {"storage.lease_seconds": str(LEASE_SECONDS)}
    with Upstream() as upstream, ExitStack() as running:
        made = [DatabaseGateway(tmp_path_factory.mktemp("replica"), upstream.url, database, settings) for _ in range(2)]
        with ThreadPoolExecutor(2) as starting:
            list(starting.map(running.enter_context, made))
        yield made, upstream


@pytest.fixture
def site(replicas: tuple[list[DatabaseGateway], Upstream]) -> Site:
    return Site(*replicas)


def wait_until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.checklist(15, 403)
def test_every_transport_reads_a_conversation_and_adds_to_it(site: Site) -> None:
    answered = site.create(site.one, "one").json
    assert answered["conversation"] == {"id": site.id}
    streamed = site.create(site.other, "two", stream=True)
    assert b"response.completed" in streamed.body
    told = site.create_on_socket(site.one, "three")
    assert told["response"]["conversation"] == {"id": site.id}
    unstored = site.create(site.other, "four", store=False).json
    assert site.ask(site.one, "GET", f"/v1/responses/{unstored['id']}").status == 404
    given = ["one", "two", "three", "four"]
    said = [text for word in given for text in (word, f"you said {word}")]
    assert site.texts(site.one) == site.texts(site.other) == said
    sent = site.upstream.calls(site.model)[-1].body["input"]
    assert len(sent) == 7
    assert site.ask(site.one, "GET", f"/v1/responses/{answered['id']}").json == answered


@pytest.mark.checklist(404)
def test_a_conversation_excludes_a_parent_over_both_transports(site: Site) -> None:
    parent = site.create(site.one, "one").json["id"]
    refused = site.create(site.one, "two", previous_response_id=parent)
    frame = site.create_on_socket(site.one, "two", previous_response_id=parent)
    assert refused.status == frame["status"] == 400
    assert refused.error == frame["error"]
    assert refused.error["code"] == "mutually_exclusive_parameters"


@pytest.mark.checklist(405, 406)
def test_one_process_writes_at_a_time_for_as_long_as_it_lives(site: Site) -> None:
    held = Held(site.upstream, f"held {site.id}")
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(site.create, site.one, "first", held.model)
        wait_until(lambda: bool(site.upstream.calls(held.model)))
        asked = len(site.upstream.calls(site.model))
        # Longer than the lease would last if nobody renewed it.
        began = time.monotonic()
        while time.monotonic() < began + 1.25 * LEASE_SECONDS:
            refused = site.create(site.other, "second")
            assert (refused.status, refused.error["code"]) == (400, "conversation_locked")
            assert refused.error["param"] == "conversation"
        frame = site.create_on_socket(site.one, "second")
        assert frame["error"] == refused.error
        by_hand = {"items": [{"role": "user", "content": "?"}]}
        added = site.ask(site.other, "POST", f"/v1/conversations/{site.id}/items", by_hand)
        assert added.error["code"] == "conversation_locked"
        assert len(site.upstream.calls(site.model)) == asked
        assert site.texts(site.other) == []
        held.release.set()
        assert first.result(20).status == 200
    assert site.create(site.other, "second").status == 200
    assert site.texts(site.one) == ["first", "first words and the rest", "second", "you said second"]


@pytest.mark.checklist(406)
def test_a_conversation_is_free_after_its_writer_was_killed(site: Site) -> None:
    held = Held(site.upstream, f"held {site.id}")
    with ThreadPoolExecutor(1) as pool:
        cut = pool.submit(site.create, site.one, "lost", held.model)
        wait_until(lambda: bool(site.upstream.calls(held.model)))
        assert site.create(site.other, "on").error["code"] == "conversation_locked"
        site.one.kill()
        with pytest.raises((OSError, AssertionError, EOFError)):
            cut.result(20)
        held.release.set()
    wait_until(lambda: site.create(site.other, "on").status == 200)
    assert site.texts(site.other) == ["on", "you said on"]
    site.one.start("/readyz")
    assert site.texts(site.one) == ["on", "you said on"]


@pytest.mark.checklist(401, 402, 407)
def test_conversations_are_made_read_changed_and_deleted_over_http(site: Site) -> None:
    path = f"/v1/conversations/{site.id}"
    made = site.ask(site.other, "GET", path).json
    assert made == {"id": site.id, "object": "conversation", "created_at": made["created_at"], "metadata": {}}
    changed = site.ask(site.one, "POST", path, {"metadata": {"topic": "t"}}).json
    assert changed == {**made, "metadata": {"topic": "t"}} == site.ask(site.other, "GET", path).json
    given = [{"role": "user", "content": str(number)} for number in range(5)]
    added = site.ask(site.one, "POST", f"{path}/items", {"items": given}).json
    ids = [item["id"] for item in added["data"]]
    first = site.ask(site.other, "GET", f"{path}/items?limit=2").json
    assert ([item["id"] for item in first["data"]], first["has_more"]) == (ids[:2:-1], True)
    assert (first["first_id"], first["last_id"]) == (ids[4], ids[3])
    rest = site.ask(site.other, "GET", f"{path}/items?limit=3&after={first['last_id']}").json
    assert ([item["id"] for item in rest["data"]], rest["has_more"]) == (ids[2::-1], False)
    one = site.ask(site.other, "GET", f"{path}/items/{ids[0]}")
    assert (one.status, one.json) == (200, added["data"][0])
    assert site.ask(site.one, "DELETE", f"{path}/items/{ids[0]}").json == changed
    for method, missing, code in (
        ("GET", f"{path}/items/{ids[0]}", "item_not_found"),
        ("DELETE", f"{path}/items/{ids[0]}", "item_not_found"),
        ("GET", "/v1/conversations/conv_none", "conversation_not_found"),
        ("GET", "/v1/conversations/conv_none/items", "conversation_not_found"),
    ):
        answer = site.ask(site.other, method, missing)
        assert (answer.status, answer.error["code"]) == (404, code)
    gone = site.ask(site.one, "DELETE", path).json
    assert gone == {"id": site.id, "object": "conversation.deleted", "deleted": True}
    assert site.ask(site.other, "GET", path).error["code"] == "conversation_not_found"
    assert site.create(site.other, "late").error["code"] == "conversation_not_found"


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/conversations", "POST"),
        ("/v1/conversations/x", "DELETE, GET, OPTIONS, POST"),
        ("/v1/conversations/x/items", "GET, OPTIONS, POST"),
        ("/v1/conversations/x/items/y", "DELETE, GET, OPTIONS"),
    ],
)
def test_methods_are_named(site: Site, path: str, allowed: str) -> None:
    answer = site.ask(site.one, "PATCH", path, {})
    assert (answer.status, answer.error["code"]) == (405, "method_not_allowed")
    named = site.ask(site.one, "OPTIONS", path)
    assert named.status == 204
    assert set(allowed.split(", ")) <= set(named.headers["allow"].split(", "))


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"{", 400, "invalid_json"),
        (b"", 400, "invalid_json"),
        (b"[]", 400, "invalid_json"),
        (b'{"metadata": 7}', 400, "invalid_type"),
        (b'{"items": "x"}', 400, "invalid_type"),
        (b'{"items": [7]}', 400, "invalid_type"),
        (b'{"metadata": {"' + b"k" * 65 + b'": ""}}', 400, "invalid_value"),
        (b" " * 11_000_000, 413, "request_too_large"),
    ],
    ids=range(8),
)
def test_bad_bodies_are_refused_by_name(site: Site, body: bytes, status: int, code: str) -> None:
    with client(site.one.port) as caller:
        answer = caller.call("POST", "/v1/conversations", body)
    assert (answer.status, answer.error["code"]) == (status, code)
