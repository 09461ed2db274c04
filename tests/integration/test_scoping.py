"""What belongs to one caller does not exist for another: the same answer as for an id that was never there.

The same status, headers and body, the same statements in the database, the same counters and the same log lines; so
that neither who calls nor who could look over the gateway's shoulder learns that there is something.
"""

import json
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness.client import Answer, client
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration.embedded import EmbeddedGateway, recorded_logs, recorded_statements
from integration.turns import echo

from gateway.config import load_config
from gateway.ports import ApiKey
from gateway.protocol.credentials import digest_key, write_key
from gateway.storage.key_file import KeyFile
from gateway.telemetry.logs import JsonFormatter

KEYS = {name: write_key(f"{name}00000000", bytes(31) + name[:1].encode()) for name in ("ada0", "bob0")}
UNKNOWN_RESPONSE, UNKNOWN_ITEM = "resp_" + "0" * 32, "msg_" + "0" * 32
UNKNOWN_CONVERSATION, UNKNOWN_PART = "conv_" + "0" * 32, "msg_" + "1" * 32
UNKNOWN_RUN = "resp_" + "1" * 32
SECRET = {"role": "user", "content": "a secret"}
IN_THE_BACKGROUND = {"background": True, "stream": True}
LOCAL_MEMORY = "what only one connection remembers"


@dataclass
class Target:
    """What one caller names of another: a response with an item, a conversation with one, a background response."""

    response: str
    item: str
    conversation: str = UNKNOWN_CONVERSATION
    part: str = UNKNOWN_PART
    run: str = UNKNOWN_RUN


@dataclass
class Seen:
    """Everything an attempt let anybody see."""

    answer: Any
    statements: list[str]
    counters: dict[Any, float]
    logs: list[str]


class Site:
    """A gateway with two callers, and what Ada stored."""

    def __init__(self, gateway: EmbeddedGateway, model: str) -> None:
        self.gateway = gateway
        self.model = model
        first = self.create("ada0", "a secret")["id"]
        self.adas = Target(self.create("ada0", "and more", first)["id"], "")
        items = self.call("ada0", "GET", f"/v1/responses/{self.adas.response}/input_items").json["data"]
        self.adas.item = items[0]["id"]
        self.adas.conversation = self.call("ada0", "POST", "/v1/conversations", {"items": [SECRET]}).json["id"]
        held = self.call("ada0", "GET", f"/v1/conversations/{self.adas.conversation}/items").json["data"]
        self.adas.part = held[0]["id"]
        told = self.call("ada0", "POST", "/v1/responses", {**IN_THE_BACKGROUND, "model": model, "input": "a secret"})
        self.adas.run = told.final["id"]

    def call(self, who: str, method: str, path: str, body: Mapping[str, Any] | None = None) -> Answer:
        payload = None if body is None else json.dumps(body).encode()
        with client(self.gateway.port) as caller:
            return caller.call(method, path, payload, headers_of(who))

    def create(self, who: str, given: str, parent: str | None = None) -> dict[str, Any]:
        body = {"model": self.model, "input": given, "previous_response_id": parent}
        answer = self.call(who, "POST", "/v1/responses", body)
        assert answer.status == 200, answer.body
        return answer.json

    def watch(self, attempt: "Attempt", who: str, target: Target) -> Seen:
        """Make an attempt and return all there was to see, with the ids made alike."""

        def level(text: str) -> str:
            text = text.replace(target.response, "RESPONSE").replace(target.item, "ITEM")
            text = text.replace(target.conversation, "CONVERSATION").replace(target.part, "PART")
            text = text.replace(target.run, "RUN")
            return re.sub(r"req_[0-9a-f]{32}", "REQUEST", text)

        def show(record: logging.LogRecord) -> str:
            line = json.loads(JsonFormatter().format(record))
            return level(json.dumps({name: value for name, value in line.items() if name not in {"time", "ms"}}))

        before = self.gateway.counters()
        with recorded_statements() as statements, recorded_logs(show) as logs:
            answer = attempt(self, who, target)
            self._settle(logs)
        after = self.gateway.counters()
        changed = {name: value - before.get(name, 0) for name, value in after.items() if value != before.get(name, 0)}
        return Seen(json.loads(level(json.dumps(answer))), statements, changed, logs)

    def _settle(self, logs: list[str]) -> None:
        """Wait for the access line, which follows the answer."""
        deadline = time.monotonic() + 20
        while not any("gateway.access" in line for line in logs):
            assert time.monotonic() < deadline
            time.sleep(0.002)


Attempt = Callable[[Site, str, Target], Any]


def headers_of(who: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {KEYS[who]}"}


def shown(answer: Answer) -> Any:
    """An answer but for what differs each time."""
    headers = {name: value for name, value in answer.headers.items() if name not in {"x-request-id", "date"}}
    return [answer.status, headers, answer.body.decode()]


def over_http(method: str, path: str, body: Mapping[str, Any] | None = None) -> Attempt:
    def attempt(site: Site, who: str, target: Target) -> Any:
        return shown(site.call(who, method, path.format(**vars(target)), body))

    return attempt


def reference(item: str) -> list[dict[str, str]]:
    return [{"type": "item_reference", "id": item}, {"role": "user", "content": "and this"}]


def build_create(site: Site, target: Target, *, by_item: bool, **fields: Any) -> dict[str, Any]:
    if by_item:
        return {"model": site.model, "input": reference(target.item), **fields}
    return {"model": site.model, "input": "and then", "previous_response_id": target.response, **fields}


def create_over_http(*, by_item: bool, **fields: Any) -> Attempt:
    def attempt(site: Site, who: str, target: Target) -> Any:
        return shown(site.call(who, "POST", "/v1/responses", build_create(site, target, by_item=by_item, **fields)))

    return attempt


def write_over_http(**fields: Any) -> Attempt:
    def attempt(site: Site, who: str, target: Target) -> Any:
        body = {"model": site.model, "input": "and then", "conversation": target.conversation, **fields}
        return shown(site.call(who, "POST", "/v1/responses", body))

    return attempt


def write_on_socket() -> Attempt:
    def attempt(site: Site, who: str, target: Target) -> Any:
        with WebSocket(site.gateway.port, headers=headers_of(who)) as socket:
            socket.create(site.model, "and then", conversation=target.conversation)
            events = socket.events_until_terminal()
        return events if len(events) == 1 else [event["type"] for event in events]

    return attempt


def create_on_socket(*, by_item: bool, **fields: Any) -> Attempt:
    def attempt(site: Site, who: str, target: Target) -> Any:
        with WebSocket(site.gateway.port, headers=headers_of(who)) as socket:
            frame = build_create(site, target, by_item=by_item, **fields)
            socket.send({"type": "response.create", "stream_id": "a", **frame})
            events = socket.events_until_terminal("a")
        return events if len(events) == 1 else [event["type"] for event in events]

    return attempt


ATTEMPTS: dict[str, Attempt] = {
    "get": over_http("GET", "/v1/responses/{response}"),
    "delete": over_http("DELETE", "/v1/responses/{response}"),
    "input items": over_http("GET", "/v1/responses/{response}/input_items?limit=1"),
    "input items after one": over_http("GET", "/v1/responses/{response}/input_items?after={item}"),
    "continue as json": create_over_http(by_item=False),
    "continue as json, unstored": create_over_http(by_item=False, store=False),
    "continue as stream": create_over_http(by_item=False, stream=True),
    "continue on a socket": create_on_socket(by_item=False),
    "continue on a socket, unstored": create_on_socket(by_item=False, store=False),
    "continue on a socket, warming up": create_on_socket(by_item=False, generate=False),
    "refer as json": create_over_http(by_item=True),
    "refer as stream": create_over_http(by_item=True, stream=True),
    "refer on a socket": create_on_socket(by_item=True),
    "read a conversation": over_http("GET", "/v1/conversations/{conversation}"),
    "change a conversation": over_http("POST", "/v1/conversations/{conversation}", {"metadata": {"a": "b"}}),
    "list a conversation": over_http("GET", "/v1/conversations/{conversation}/items"),
    "list a conversation after one": over_http("GET", "/v1/conversations/{conversation}/items?after={part}"),
    "add to a conversation": over_http("POST", "/v1/conversations/{conversation}/items", {"items": [SECRET]}),
    "read an item": over_http("GET", "/v1/conversations/{conversation}/items/{part}"),
    "write to a conversation as json": write_over_http(),
    "write to a conversation as stream": write_over_http(stream=True, store=False),
    "write to a conversation on a socket": write_on_socket(),
    "write to a conversation in the background": write_over_http(background=True),
    "read a background response": over_http("GET", "/v1/responses/{run}"),
    "read its events": over_http("GET", "/v1/responses/{run}?stream=true"),
    "read on its events": over_http("GET", "/v1/responses/{run}?stream=true&starting_after=1"),
    "cancel it": over_http("POST", "/v1/responses/{run}/cancel"),
    "cancel one that is none": over_http("POST", "/v1/responses/{response}/cancel"),
    "continue in the background": create_over_http(by_item=False, background=True),
    "refer in the background": create_over_http(by_item=True, **IN_THE_BACKGROUND),
    "delete a background response": over_http("DELETE", "/v1/responses/{run}"),
    "delete an item": over_http("DELETE", "/v1/conversations/{conversation}/items/{part}"),
    "delete a conversation": over_http("DELETE", "/v1/conversations/{conversation}"),
}


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def site(
    request: pytest.FixtureRequest, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("scoping")
    book = KeyFile(folder / "keys.toml", max_keys=2)
    for name, text in KEYS.items():
        book.add(ApiKey(id=f"{name}00000000", principal=name, digest=digest_key(text), created_at=1))
    url = f"sqlite:///{folder}/responses.db"
    if request.param == "postgres":
        url = request.getfixturevalue("postgres_server").create_database()
    settings = {
        "server.port": 0,
        "admin.enabled": "false",
        "auth.mode": "api_keys",
        "auth.keys_file": folder / "keys.toml",
        "upstream.url": upstream.url,
        "storage.url": url,
        "storage.auto_migrate": "always",
        # Nothing else shall ask or write meanwhile.
        "storage.verify_after_seconds": "1h",
        "upstream.health_interval_seconds": "1h",
        "background.heartbeat_seconds": "1m",
        "auth.keys_revalidate_seconds": "1h",
        "auth.keys_max_stale_seconds": "2h",
        "storage.lease_seconds": "1h",
    }
    config = load_config(None, {}, [f"{key}={value}" for key, value in settings.items()]).config
    with ExitStack() as running:
        gateway = running.enter_context(EmbeddedGateway(config))
        yield Site(gateway, upstream.script("scoping", echo))


@pytest.mark.checklist(6, 54, 408)
@pytest.mark.parametrize("name", ATTEMPTS)
def test_anothers_id_is_an_unknown_one(site: Site, name: str) -> None:
    attempt = ATTEMPTS[name]
    for _ in range(2):
        unknown = site.watch(attempt, "bob0", Target(UNKNOWN_RESPONSE, UNKNOWN_ITEM))
    anothers = site.watch(attempt, "bob0", site.adas)
    assert anothers == unknown
    assert unknown.statements
    assert "404" in str(unknown.answer) or "400" in str(unknown.answer)
    assert site.call("ada0", "GET", f"/v1/responses/{site.adas.response}").status == 200


@pytest.mark.parametrize("name", [name for name in ATTEMPTS if not name.startswith("delete")])
def test_its_owner_would_have_seen_a_difference(site: Site, name: str) -> None:
    """Or the test above would show nothing."""
    own = site.watch(ATTEMPTS[name], "ada0", site.adas)
    unknown = site.watch(ATTEMPTS[name], "ada0", Target(UNKNOWN_RESPONSE, UNKNOWN_ITEM))
    assert own.answer != unknown.answer
    assert (own.counters, own.logs) != (unknown.counters, unknown.logs)


@pytest.mark.checklist(54)
def test_what_one_connection_remembers_is_its_own(site: Site) -> None:
    with WebSocket(site.gateway.port, headers=headers_of("ada0")) as socket:
        socket.create(site.model, LOCAL_MEMORY, store=False)
        kept = Target(socket.events_until_terminal()[-1]["response"]["id"], UNKNOWN_ITEM)
        attempt = ATTEMPTS["continue on a socket, unstored"]
        unknown = site.watch(attempt, "bob0", Target(UNKNOWN_RESPONSE, UNKNOWN_ITEM))
        assert site.watch(attempt, "bob0", kept) == unknown
        assert site.watch(attempt, "ada0", kept).answer == unknown.answer
        socket.create(site.model, "go on", previous_response_id=kept.response, store=False)
        assert socket.events_until_terminal()[-1]["type"] == "response.completed"


def test_a_new_key_of_the_same_owner_finds_everything(site: Site, tmp_path: Path) -> None:
    """What is stored belongs to the principal, not to the key."""
    text = write_key("adaskey20000", bytes(32))
    book = KeyFile(Path(site.gateway.gateway.config.auth.keys_file), max_keys=3)
    book.add(ApiKey(id="adaskey20000", principal="ada0", digest=digest_key(text), created_at=1))
    try:
        deadline = time.monotonic() + 20
        with client(site.gateway.port) as caller:
            while True:
                headers = {"Authorization": f"Bearer {text}"}
                answer = caller.call("GET", f"/v1/responses/{site.adas.response}", None, headers)
                if answer.status == 200 or time.monotonic() > deadline:
                    break
                time.sleep(0.05)
        assert answer.status == 200
    finally:
        book.revoke("adaskey20000", 1)
