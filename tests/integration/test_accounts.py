"""What principals use and keep: counted the same over every transport, and removed beside running gateways."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from click.testing import CliRunner
from harness.client import client
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration.embedded import EmbeddedGateway
from integration.turns import ask, echo, expect_error, id_of, told
from sqlalchemy import Engine

from gateway.cli import db
from gateway.config import load_config
from gateway.ports import ApiKey
from gateway.protocol.credentials import digest_key, write_key
from gateway.storage.engine import open_engine
from gateway.storage.key_file import KeyFile
from gateway.storage.retention import Cutoffs, Sweep
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.usage import sum_usage

KEYS = {name: write_key(f"{name}00000000", bytes(31) + name[:1].encode()) for name in ("ada0", "bob0")}
SIGNED = {name: {"Authorization": f"Bearer {key}"} for name, key in KEYS.items()}
DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]


class Place:
    """A database, the keys of two callers, and gateways that use both."""

    def __init__(self, url: str, keys: str, upstream: Upstream, running: ExitStack) -> None:
        self.url = url
        self._settings = [
            *("server.port=0", "admin.enabled=false", f"upstream.url={upstream.url}", "auth.mode=api_keys"),
            *(f"auth.keys_file={keys}", f"storage.url={url}", "storage.auto_migrate=always"),
            # No test waits for it: what is counted is stored at the end.
            "storage.usage_interval_seconds=1h",
        ]
        self._running = running

    def start(self, *settings: str) -> EmbeddedGateway:
        config = load_config(None, {}, [*self._settings, *settings]).config
        return self._running.enter_context(EmbeddedGateway(config))

    @contextmanager
    def open(self) -> Iterator[Engine]:
        engine = open_engine(StoreSettings(url=database_url(self.url)))
        try:
            yield engine
        finally:
            engine.dispose()

    def usage(self) -> dict[str, dict[str, Any]]:
        """Stop the gateways; what is stored for each principal."""
        self._running.close()
        with self.open() as engine, engine.connect() as connection:
            return {row.pop("principal"): row for row in sum_usage(connection, ["principal", "model"])}


@pytest.fixture(params=DATABASES)
def place(request: pytest.FixtureRequest, upstream: Upstream, tmp_path) -> Iterator[Place]:
    keys = KeyFile(tmp_path / "keys.toml", max_keys=2)
    for name, key in KEYS.items():
        keys.add(ApiKey(id=f"{name}00000000", principal=name, digest=digest_key(key), created_at=0))
    sqlite = request.param == "sqlite"
    url = f"sqlite:///{tmp_path}/responses.db" if sqlite else request.getfixturevalue("postgres_database")
    with ExitStack() as running:
        yield Place(url, f"{tmp_path}/keys.toml", upstream, running)


def create(gateway: EmbeddedGateway, name: str, model: str, **fields: object) -> Any:
    """Ask over HTTP; the answer, of which nothing is left to come."""
    with client(gateway.port) as caller:
        body = json.dumps({"model": model, "input": "hi", **fields}).encode()
        return caller.call("POST", "/v1/responses", body, SIGNED[name])


@pytest.mark.checklist(30)
def test_the_same_calls_count_the_same_over_http_and_websocket(place: Place, upstream: Upstream) -> None:
    model = upstream.script("usage", echo)
    one, other = place.start(), place.start()
    for gateway in (one, other):
        parent = json.loads(create(gateway, "ada0", model).body)["id"]
        assert create(gateway, "ada0", model, stream=True, previous_response_id=parent).status == 200
        assert create(gateway, "ada0", model, stream=True, store=False).status == 200
        with WebSocket(gateway.port, headers=SIGNED["bob0"]) as socket:
            parent = id_of(ask(socket, model))
            told(socket, model, "hi", parent, stream_id="lane")
            told(socket, model, store=False)
    counted = [
        {key: value for key, value in gateway.counters().items() if key[0] == "gateway_tokens_total"}
        for gateway in (one, other)
    ]
    status = asyncio.run_coroutine_threadsafe(one.gateway.read_status(), one._loop).result(10)
    assert [(row.principal, row.responses) for row in status.principals] == [("ada0", 3), ("bob0", 3)]
    usage = place.usage()
    assert usage["ada0"] == usage["bob0"]
    assert (usage["ada0"]["model"], usage["ada0"]["responses"]) == (model, 6)
    for kind in ("input", "output"):
        metric = sum(
            value for (_, labels), value in [*counted[0].items(), *counted[1].items()] if ("kind", kind) in labels
        )
        assert sum(row[f"{kind}_tokens"] for row in usage.values()) == metric > 0


def test_all_of_a_principal_goes_while_gateways_run(place: Place, upstream: Upstream) -> None:
    model = upstream.script("purged", echo)
    gateway, other = (place.start("storage.history_revalidate_seconds=0") for _ in range(2))
    ada, bob = (json.loads(create(gateway, name, model).body)["id"] for name in SIGNED)
    child = json.loads(create(other, "ada0", model, previous_response_id=ada).body)["id"]
    arguments = ["purge", "--database", place.url, "--principal", "ada0", "--yes"]
    result = CliRunner().invoke(db.command, arguments)
    assert (result.exit_code, result.stdout) == (0, "Removed: responses 2, items 4, conversations 0.\n")
    for one in (gateway, other):
        with client(one.port) as caller:
            for gone in (ada, child):
                assert caller.call("GET", f"/v1/responses/{gone}", None, SIGNED["ada0"]).status == 404
            assert caller.call("GET", f"/v1/responses/{bob}", None, SIGNED["bob0"]).status == 200
        refusal = create(one, "ada0", model, previous_response_id=child)
        assert refusal.error["code"] == "previous_response_not_found"
        assert create(one, "ada0", model).status == 200


def test_who_keeps_too_much_is_refused_alike_over_every_transport(place: Place, upstream: Upstream) -> None:
    model = upstream.script("room", echo)
    gateway = place.start("storage.max_bytes_per_principal=3KiB", "storage.quota_revalidate_seconds=0")
    parent = json.loads(create(gateway, "ada0", model, metadata={"k": "v" * 500}, instructions="x" * 3000).body)["id"]
    calls = len(upstream.calls(model))
    for stream in (False, True):
        refusal = create(gateway, "ada0", model, stream=stream, previous_response_id=parent)
        assert (refusal.status, refusal.error["code"], refusal.error["type"], refusal.headers["x-should-retry"]) == (
            *(429, "insufficient_quota", "insufficient_quota"),
            "false",
        )
    with WebSocket(gateway.port, headers=SIGNED["ada0"]) as socket:
        (event,) = ask(socket, model, stream_id="lane")
        expect_error(event, "insufficient_quota", None, 429, "lane", None, "insufficient_quota")
        assert len(upstream.calls(model)) == calls
        told(socket, model, stream_id="lane", store=False)
    assert create(gateway, "bob0", model).status == 200
    rejected = ("gateway_rejections_total", (("key", "storage.max_bytes_per_principal"),))
    assert gateway.counters()[rejected] == 3
    with client(gateway.port) as caller:
        assert caller.call("DELETE", f"/v1/responses/{parent}", None, SIGNED["ada0"]).status == 200
    assert create(gateway, "ada0", model).status == 429
    with place.open() as engine:
        sweep = Sweep(engine, batch_responses=10)
        assert sum(removed.responses for removed in sweep.remove(Cutoffs(created=None, deleted=2**40))) == 1
    assert create(gateway, "ada0", model).status == 200
