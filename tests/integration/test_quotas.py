"""What one principal may have in the making and how often it may ask, the same over every transport."""

import json
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from harness.client import Answer, client
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration.embedded import EmbeddedGateway
from integration.turns import Held, ask, await_begun, echo, expect_error, expect_sound, id_of, told

from gateway.config import load_config
from gateway.ports import ApiKey
from gateway.protocol.credentials import digest_key, write_key
from gateway.storage.key_file import KeyFile

KEYS = {name: write_key(f"{name}00000000", bytes(31) + name[:1].encode()) for name in ("ada0", "bob0")}
SIGNED = {name: {"Authorization": f"Bearer {key}"} for name, key in KEYS.items()}


@pytest.fixture
def start(upstream: Upstream, tmp_path) -> Iterator:
    """Starts a gateway with two callers and the limits of a test."""
    with ExitStack() as running:

        def run(*settings: str) -> EmbeddedGateway:
            keys = KeyFile(tmp_path / "keys.toml", max_keys=2)
            for name, key in KEYS.items():
                keys.add(ApiKey(id=f"{name}00000000", principal=name, digest=digest_key(key), created_at=0))
            own = [
                *("server.port=0", "admin.enabled=false", f"upstream.url={upstream.url}", "auth.mode=api_keys"),
                *(f"auth.keys_file={tmp_path}/keys.toml", f"storage.url=sqlite:///{tmp_path}/responses.db"),
                *settings,
            ]
            return running.enter_context(EmbeddedGateway(load_config(None, {}, own).config))

        yield run


def create(gateway: EmbeddedGateway, model: str, name: str, **fields: object) -> Answer:
    body = {"model": model, "input": "hi", **fields}
    with client(gateway.port) as caller:
        return caller.call("POST", "/v1/responses", json.dumps(body).encode(), SIGNED[name])


@pytest.mark.checklist(29)
def test_creates_take_places_and_open_sockets_none(start, upstream: Upstream) -> None:
    gateway = start("limits.max_concurrent_per_principal=1")
    held, model = Held(upstream, "quota held"), upstream.script("quota free", echo)
    ada, bob = SIGNED["ada0"], SIGNED["bob0"]
    with WebSocket(gateway.port, headers=ada) as one, WebSocket(gateway.port, headers=ada) as other:
        parent = told(other, model, stream_id="lane", store=False)
        one.create(held.model)
        await_begun(one, {None})
        (event,) = ask(other, model, "too many", parent, stream_id="lane", store=False)
        expect_error(event, "rate_limit_exceeded", None, 429, "lane", None, "rate_limit_error")
        assert event["error"]["headers"] == {"retry-after": "1"}
        refusal = create(gateway, model, "ada0", stream=True)
        assert (refusal.status, refusal.error["code"], refusal.headers["retry-after"]) == (
            429,
            "rate_limit_exceeded",
            "1",
        )
        with WebSocket(gateway.port, headers=bob) as third:
            told(third, model)
        held.release.set()
        expect_sound(one.events_until_terminal())
        # What was refused has evicted nothing.
        told(other, model, "again", parent, stream_id="lane", store=False)
        assert create(gateway, model, "ada0").status == 200


@pytest.mark.checklist(30)
def test_the_same_calls_use_up_the_same_on_both_transports(start, upstream: Upstream) -> None:
    gateway = start("limits.requests_per_minute_per_principal=4")
    model = upstream.script("quota rate", echo)
    left = [create(gateway, model, "ada0", stream=stream).headers for stream in (False, True)]
    assert [headers["x-ratelimit-remaining-requests"] for headers in left] == ["3", "2"]
    assert {headers["x-ratelimit-limit-requests"] for headers in left} == {"4"}
    with WebSocket(gateway.port, headers=SIGNED["ada0"]) as socket:
        response = id_of(ask(socket, model, stream_id="a"))
        told(socket, model)
        (event,) = ask(socket, model, stream_id="b")
    expect_error(event, "rate_limit_exceeded", None, 429, "b", None, "rate_limit_error")
    refusal = create(gateway, model, "ada0")
    for headers in (event["error"]["headers"], refusal.headers):
        assert 1 <= int(headers["retry-after"]) <= 15
        assert headers["x-ratelimit-remaining-requests"] == "0"
    with client(gateway.port) as caller:
        # Reading costs nothing, and another principal has its own allowance.
        assert caller.call("GET", f"/v1/responses/{response}", None, SIGNED["ada0"]).status == 200
    assert create(gateway, model, "bob0").headers["x-ratelimit-remaining-requests"] == "3"


def test_without_limits_nothing_is_said_about_them(start, upstream: Upstream) -> None:
    answer = create(start(), upstream.script("quota none", echo), "ada0")
    assert (answer.status, [name for name in answer.headers if "ratelimit" in name]) == (200, [])


def test_what_is_passed_through_counts_too(start, upstream: Upstream) -> None:
    gateway = start("limits.requests_per_minute_per_principal=1", 'upstream.passthrough=["/v1/embeddings"]')
    assert create(gateway, upstream.script("quota passed", echo), "ada0").status == 200
    with client(gateway.port) as caller:
        answer = caller.call("POST", "/v1/embeddings", b'{"model":"m"}', SIGNED["ada0"])
    assert (answer.status, answer.error["code"]) == (429, "rate_limit_exceeded")
