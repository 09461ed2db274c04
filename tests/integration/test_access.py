"""Who gets in, by which key, for how long; over HTTP and on WebSockets, on one gateway and on several."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from harness.client import Answer, client, open_create, read_until
from harness.logs import restored_logging
from harness.upstream import Upstream
from harness.websocket import HandshakeRefused, WebSocket
from integration.embedded import EmbeddedGateway
from integration.turns import Held, await_begun, echo, expect_error, expect_sound, told

from gateway.app.parts import SystemClock
from gateway.cli.keys import command
from gateway.config import load_config

RESPONSES = "/v1/responses"
NOBODY = "/v1/responses/resp_" + "0" * 32
ROUTES = [
    ("POST", RESPONSES),
    ("GET", RESPONSES),
    ("GET", NOBODY),
    ("DELETE", NOBODY),
    ("GET", f"{NOBODY}/input_items"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/m"),
    ("GET", "/nowhere"),
    ("PATCH", "/v1/models"),
]
STRANGE = [
    None,
    "",
    "Bearer",
    "Bearer ",
    "Bearer sk-something",
    "Basic YWRhOnNlY3JldA==",
    "Bearer rgw_000000000000_" + "0" * 64,
]
Start = Callable[..., EmbeddedGateway]


class Keys:
    """`gateway keys` on one place."""

    def __init__(self, *place: str) -> None:
        self.settings = place
        self._options = [part for setting in place for part in ("--set", setting)]

    def create(self, principal: str = "ada", *options: str) -> str:
        return self._run("create", "--principal", principal, *options).strip()

    def revoke(self, key: str) -> None:
        self._run("revoke", key)

    def _run(self, name: str, *arguments: str) -> str:
        with restored_logging():
            result = CliRunner().invoke(command, [name, *self._options, *arguments])
        assert result.exit_code == 0, result.stderr
        return result.stdout


class TwoHoursLater(SystemClock):
    """A clock for the expiry of keys."""

    def now(self) -> float:
        return time.time() + 7200


@pytest.fixture(scope="module")
def start(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Start]:
    """Starts gateways in this process, stopped at the end of the module."""
    with ExitStack() as running:

        def run(*settings: str) -> EmbeddedGateway:
            own = [
                *("server.port=0", "admin.enabled=false", f"upstream.url={upstream.url}"),
                f"storage.url=sqlite:///{tmp_path_factory.mktemp('access')}/responses.db",
                *settings,
            ]
            return running.enter_context(EmbeddedGateway(load_config(None, {}, own).config))

        yield run


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return Keys(f"auth.keys_file={tmp_path_factory.mktemp('keys')}/keys.toml", "auth.mode=api_keys")


@pytest.fixture(scope="module")
def key(keys: Keys) -> str:
    return keys.create()


@pytest.fixture(scope="module")
def gateway(start: Start, keys: Keys, key: str) -> EmbeddedGateway:
    """One that asks for keys, and may be called by pages of one origin."""
    origins = 'server.allowed_origins=["https://chat.example"]'
    return start(*keys.settings, "auth.keys_revalidate_seconds=0.1", origins)


@pytest.fixture
def model(upstream: Upstream, request: pytest.FixtureRequest) -> str:
    return upstream.script(f"access {request.node.name}", echo)


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def call(
    gateway: EmbeddedGateway, method: str, path: str, headers: Mapping[str, str] | None = None, body: Any = None
) -> Answer:
    with client(gateway.port) as caller:
        return caller.call(method, path, None if body is None else json.dumps(body).encode(), headers)


def create(gateway: EmbeddedGateway, model: str, key: str) -> int:
    return call(gateway, "POST", RESPONSES, bearer(key), {"model": model, "input": "hi"}).status


def await_status(gateway: EmbeddedGateway, key: str, status: int) -> None:
    deadline = time.monotonic() + 20
    while (seen := call(gateway, "GET", NOBODY, bearer(key)).status) != status:
        assert time.monotonic() < deadline, seen
        time.sleep(0.01)


def alike(answer: Answer) -> Any:
    """An answer but for what differs each time."""
    headers = {name: value for name, value in answer.headers.items() if name not in {"x-request-id", "date"}}
    return answer.status, headers, answer.body


# ---------------------------------------------------------------- at the door


@pytest.mark.parametrize(("method", "path"), ROUTES)
def test_whoever_has_no_key_is_told_the_same_on_every_route(gateway: EmbeddedGateway, method: str, path: str) -> None:
    answers = [
        call(gateway, method, path, {} if credential is None else {"Authorization": credential})
        for credential in STRANGE
    ]
    status, headers, body = alike(answers[0])
    assert (status, headers["www-authenticate"], headers["content-type"]) == (401, "Bearer", "application/json")
    assert (json.loads(body)["error"]["type"], json.loads(body)["error"]["code"]) == (
        "invalid_request_error",
        "invalid_api_key",
    )
    assert [alike(answer) for answer in answers] == [(status, headers, body)] * len(STRANGE)


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health", "/version", "/openapi.json", "/docs"])
def test_probes_and_the_description_ask_for_none(gateway: EmbeddedGateway, path: str) -> None:
    assert call(gateway, "GET", path).status == 200


def test_strangers_are_told_no_details(gateway: EmbeddedGateway) -> None:
    checks = call(gateway, "GET", "/readyz?verbose").json["checks"]
    assert {check["detail"] for check in checks} == {"as it should be"}
    assert "bearer" in call(gateway, "GET", "/openapi.json").json["components"]["securitySchemes"]


@pytest.mark.checklist(6)
@pytest.mark.parametrize("credential", STRANGE)
def test_a_stranger_gets_no_socket(gateway: EmbeddedGateway, credential: str | None) -> None:
    with pytest.raises(HandshakeRefused) as refusal:
        WebSocket(gateway.port, headers={} if credential is None else {"Authorization": credential})
    answer = refusal.value.answer
    assert (answer.status, answer.error["code"], answer.headers["www-authenticate"]) == (
        401,
        "invalid_api_key",
        "Bearer",
    )


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_a_key_opens_every_way_in(gateway: EmbeddedGateway, key: str, model: str, scheme: str) -> None:
    headers = {"Authorization": f"{scheme} {key}"}
    body = {"model": model, "input": "hi"}
    answer = call(gateway, "POST", RESPONSES, headers, body)
    assert answer.status == 200
    assert call(gateway, "POST", RESPONSES, headers, {**body, "stream": True}).final["status"] == "completed"
    assert call(gateway, "GET", f"{RESPONSES}/{answer.json['id']}", headers).status == 200
    with WebSocket(gateway.port, headers=headers) as socket:
        told(socket, model, "go on", answer.json["id"])


def test_the_key_goes_to_no_inference_server(
    gateway: EmbeddedGateway, key: str, model: str, upstream: Upstream
) -> None:
    assert create(gateway, model, key) == 200
    with WebSocket(gateway.port, headers=bearer(key)) as socket:
        told(socket, model)
    for seen in upstream.calls(model):
        assert "authorization" not in seen.headers
        assert key.encode() not in seen.raw


def test_a_page_may_ask_before_it_has_a_key_and_read_that_it_needs_one(gateway: EmbeddedGateway, key: str) -> None:
    origin = {"Origin": "https://chat.example"}
    asked = {**origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization"}
    preflight = call(gateway, "OPTIONS", RESPONSES, asked)
    assert (preflight.status, preflight.headers["access-control-allow-origin"]) == (204, origin["Origin"])
    assert "authorization" in preflight.headers["access-control-allow-headers"].lower()
    for headers in (origin, {**origin, **bearer("wrong")}):
        refusal = call(gateway, "POST", RESPONSES, headers, {})
        assert (refusal.status, refusal.headers["access-control-allow-origin"]) == (401, origin["Origin"])
    refusal = call(gateway, "POST", RESPONSES, {"Origin": "https://evil.example", **bearer(key)}, {})
    assert (refusal.status, refusal.error["code"]) == (403, "origin_not_allowed")


# ---------------------------------------------------------------- keys that come and go


def test_a_key_that_was_just_made_counts_at_once(gateway: EmbeddedGateway, keys: Keys, model: str) -> None:
    fresh = keys.create("bob")
    await_status(gateway, fresh, 404)
    keys.revoke(fresh)
    await_status(gateway, fresh, 401)


@pytest.mark.checklist(6)
def test_a_revoked_key_ends_nothing_that_runs(gateway: EmbeddedGateway, keys: Keys, upstream: Upstream) -> None:
    key = keys.create("carl")
    await_status(gateway, key, 404)
    held = Held(upstream, "access held")
    body = {"model": held.model, "input": "hi", "stream": True}
    with WebSocket(gateway.port, headers=bearer(key)) as socket, open_create(gateway.port, body, bearer(key)) as stream:
        socket.create(held.model, stream_id="a")
        socket.create(held.model, stream_id="a")
        await_begun(socket, {"a"})
        read_until(stream, b"output_text.delta")
        keys.revoke(key)
        await_status(gateway, key, 401)
        socket.create(held.model, stream_id="b", event_id="mine")
        (refusal,) = socket.events_until_terminal("b")
        expect_error(refusal, "invalid_api_key", status=401, stream_id="b", event_id="mine")
        held.release.set()
        assert b"response.completed" in read_until(stream, b"[DONE]")
        expect_sound(socket.events_until_terminal("a"), "a")
        (waited,) = socket.events_until_terminal("a")
        assert (waited["status"], waited["error"]["code"]) == (401, "invalid_api_key")
    assert len(upstream.calls(held.model)) == 2


def test_an_expired_key_counts_no_more(
    gateway: EmbeddedGateway, keys: Keys, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = keys.create("dora", "--expires", "1h")
    await_status(gateway, key, 404)
    with WebSocket(gateway.port, headers=bearer(key)) as socket:
        told(socket, model)
        monkeypatch.setattr(gateway.gateway.parts.authenticator, "_clock", TwoHoursLater())
        assert call(gateway, "GET", NOBODY, bearer(key)).status == 401
        socket.create(model)
        (refusal,) = socket.events_until_terminal()
        expect_error(refusal, "invalid_api_key", status=401)


@pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def test_replicas_share_the_keys_of_the_database(
    start: Start, kind: str, request: pytest.FixtureRequest, tmp_path: Path, model: str
) -> None:
    url = f"sqlite:///{tmp_path}/responses.db"
    if kind == "postgres":
        url = request.getfixturevalue("postgres_server").create_database()
    place = ("auth.keys_in=database", f"storage.url={url}", "storage.auto_migrate=always", "auth.mode=api_keys")
    keys = Keys(*place)
    key = keys.create("ada")
    replicas = [start(*place, "auth.keys_revalidate_seconds=0.2") for _ in range(2)]
    answer = call(replicas[0], "POST", RESPONSES, bearer(key), {"model": model, "input": "hi"})
    assert call(replicas[1], "GET", f"{RESPONSES}/{answer.json['id']}", bearer(key)).status == 200
    keys.revoke(key)
    for replica in replicas:
        await_status(replica, key, 401)


# ---------------------------------------------------------------- a proxy that names its callers


@pytest.fixture(scope="module")
def proxied(start: Start) -> EmbeddedGateway:
    return start("auth.trusted_principal_header=X-Caller", 'auth.trusted_proxies=["127.0.0.1"]')


def test_whom_the_proxy_names_owns_what_it_stores(proxied: EmbeddedGateway, model: str, upstream: Upstream) -> None:
    body = {"model": model, "input": "hi"}
    answer = call(proxied, "POST", RESPONSES, {"X-Caller": "ada@example.com"}, body)
    path = f"{RESPONSES}/{answer.json['id']}"
    assert call(proxied, "GET", path, {"X-Caller": "ada@example.com"}).status == 200
    assert call(proxied, "GET", path, {"X-Caller": "bob@example.com"}).status == 404
    with WebSocket(proxied.port, headers={"X-Caller": "ada@example.com"}) as socket:
        told(socket, model, "go on", answer.json["id"])
    assert not any("x-caller" in seen.headers for seen in upstream.calls(model))


def test_a_request_in_which_the_proxy_names_nobody(proxied: EmbeddedGateway) -> None:
    assert call(proxied, "GET", NOBODY).status == 401
    assert call(proxied, "GET", NOBODY, {"X-Caller": "two words"}).status == 401
    with pytest.raises(HandshakeRefused) as refusal:
        WebSocket(proxied.port)
    assert refusal.value.answer.status == 401
    assert call(proxied, "GET", "/livez").status == 200


def test_the_header_of_anybody_else_is_not_looked_at(start: Start, model: str, upstream: Upstream) -> None:
    gateway = start("auth.trusted_principal_header=X-Caller", 'auth.trusted_proxies=["10.0.0.0/8"]')
    body = {"model": model, "input": "hi"}
    answer = call(gateway, "POST", RESPONSES, {"X-Caller": "ada"}, body)
    assert call(gateway, "GET", f"{RESPONSES}/{answer.json['id']}", {"X-Caller": "bob"}).status == 200
    assert not any("x-caller" in seen.headers for seen in upstream.calls(model))


def test_a_proxy_in_front_of_keys(start: Start, keys: Keys, key: str) -> None:
    header = ("auth.trusted_principal_header=X-Caller", 'auth.trusted_proxies=["127.0.0.1"]')
    gateway = start(*keys.settings, *header)
    assert call(gateway, "GET", NOBODY, {"X-Caller": "ada"}).status == 404
    assert call(gateway, "GET", NOBODY, bearer(key)).status == 404
    assert call(gateway, "GET", NOBODY).status == 401


# ---------------------------------------------------------------- clients


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:connect.. must be used:DeprecationWarning")
def test_the_openai_library_sends_the_key_by_itself(gateway: EmbeddedGateway, key: str, model: str) -> None:
    from openai import AuthenticationError, OpenAI

    base_url = f"http://127.0.0.1:{gateway.port}/v1"
    with OpenAI(base_url=base_url, api_key=key, max_retries=0) as library:
        first = library.responses.create(model=model, input="hi")
        with library.responses.stream(model=model, input="more", previous_response_id=first.id) as stream:
            assert stream.get_final_response().output_text == "you said more"
        assert library.responses.retrieve(first.id).output_text == "you said hi"
        with library.responses.connect() as connection:
            connection.response.create(model=model, input="on a socket", previous_response_id=first.id)
            final = next(event for event in connection if event.type == "response.completed")
        assert final.response.output_text == "you said on a socket"
    with OpenAI(base_url=base_url, api_key="wrong", max_retries=0) as library:
        with pytest.raises(AuthenticationError) as refusal:
            library.responses.create(model=model, input="hi")
        assert refusal.value.code == "invalid_api_key"
