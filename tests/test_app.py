import logging

import httpx
import pytest
from transport.asgi import Conversation

from gateway.app import Gateway, StartError, build_parts
from gateway.config.schema import AdminConfig, GatewayConfig, ServerConfig, StorageConfig, UpstreamConfig
from gateway.config.secret import Secret, SecretUrl
from gateway.ports import UpstreamHealth
from gateway.protocol.errors import NotFound, Unavailable
from gateway.storage.memory import MemoryStore
from gateway.telemetry.metrics import read_values
from gateway.transport.connection import CONNECTION_EXTENSION


class FakeUsage:
    def __init__(self):
        self.log = []

    async def start(self):
        self.log.append("start")

    async def close(self):
        self.log.append("close")


class FakeEngine:
    def __init__(self):
        self.usage = FakeUsage()
        self.draining = False

    def begin_drain(self):
        self.draining = True

    async def drained(self, timeout):
        return True

    def cut_off(self):
        return 3

    async def retrieve(self, principal, response_id):
        if response_id != "resp_1":
            raise NotFound(f"No response '{response_id}'.", code="response_not_found")
        return b'{"id":"resp_1","owner":"%s"}' % principal.encode()

    async def delete(self, principal, response_id):
        return b'{"id":"%s","owner":"%s"}' % (response_id.encode(), principal.encode())

    async def input_items(self, principal, response_id, page):
        return b'{"id":"%s","owner":"%s","limit":%d}' % (response_id.encode(), principal.encode(), page.limit)

    async def models(self):
        return b'{"object":"list","data":[]}'

    async def model(self, model_id):
        return b'{"id":"%s"}' % model_id.encode()


class FakeUpstream:
    def __init__(self):
        self.log = []
        self.health = UpstreamHealth(healthy=True, detail="ok", checked_at=1, dialect="vllm")

    def redact(self, text):
        return text.replace("s3cret", "[redacted]")

    async def start(self):
        self.log.append("start")

    async def close(self):
        self.log.append("close")


async def endpoint(scope, receive, send):
    if scope["headers"] and (b"x-fail", b"busy") in scope["headers"]:
        raise Unavailable("Too many responses at once.")
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": b'{"id":"resp_2"}'})


@pytest.fixture
def build():
    def build(upstreams=None, **server):
        config = GatewayConfig(server=ServerConfig(**server))
        parts = build_parts(
            config, store=MemoryStore(), upstreams=upstreams or {}, engine=FakeEngine(), endpoint=endpoint
        )
        return Gateway(parts)

    return build


@pytest.fixture
async def client(build):
    transport = httpx.ASGITransport(app=build().public)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


async def test_post_goes_to_the_endpoint(client):
    answer = await client.post("/v1/responses", json={})
    assert (answer.status_code, answer.json()) == (200, {"id": "resp_2"})


async def test_an_error_of_the_endpoint_gets_the_envelope(client):
    answer = await client.post("/v1/responses", headers={"x-fail": "busy"})
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"]["code"] == "server_is_overloaded"


async def test_plain_get_asks_for_an_upgrade(client):
    answer = await client.get("/v1/responses")
    assert (answer.status_code, answer.headers["upgrade"]) == (426, "websocket")
    assert answer.json()["error"]["code"] == "upgrade_required"


@pytest.mark.parametrize(
    ("method", "path", "allow"),
    [
        ("DELETE", "/v1/responses", {"POST", "GET"}),
        ("PUT", "/v1/responses", {"POST", "GET"}),
        ("POST", "/v1/models", {"GET", "OPTIONS"}),
        ("POST", "/livez", {"GET", "OPTIONS"}),
    ],
)
async def test_other_methods_are_refused_with_those_allowed(client, method, path, allow):
    answer = await client.request(method, path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
    assert set(answer.headers["allow"].split(", ")) == allow


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/response", "/v1/responses/resp_1/nothing", "/schema"])
async def test_unknown_routes(client, path):
    answer = await client.get(path)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found")


async def test_stored_responses_are_read_as_the_caller(client):
    assert (await client.get("/v1/responses/resp_1?beta=true")).json() == {"id": "resp_1", "owner": "local"}
    missing = await client.get("/v1/responses/resp_9")
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "response_not_found")


async def test_a_response_is_deleted_and_its_input_listed(client):
    answer = await client.delete("/v1/responses/resp_1?beta=true")
    assert (answer.status_code, answer.json()) == (200, {"id": "resp_1", "owner": "local"})
    assert answer.headers["content-type"] == "application/json"
    answer = await client.get("/v1/responses/resp_1/input_items?beta=true&limit=7&include[]=x")
    assert (answer.status_code, answer.json()) == (200, {"id": "resp_1", "owner": "local", "limit": 7})
    answer = await client.get("/v1/responses/resp_1/input_items?limit=101")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "limit")
    assert (await client.delete("/v1/responses/resp_1/input_items")).status_code == 405


@pytest.mark.parametrize("query", ["stream=false", "include[]=message.output_text.logprobs", "include=what.ever"])
async def test_what_reading_a_response_may_be_asked_for(client, query):
    assert (await client.get(f"/v1/responses/resp_1?{query}")).status_code == 200


@pytest.mark.parametrize("query", ["stream=true", "stream=True&starting_after=1"])
async def test_reading_a_response_as_a_stream_is_refused_by_name(client, query):
    answer = await client.get(f"/v1/responses/resp_1?{query}")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "unsupported_parameter", "stream")


async def test_reading_a_response_with_half_a_word_for_stream_is_refused(client):
    answer = await client.get("/v1/responses/resp_1?stream=tru")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_value", "stream")


@pytest.mark.parametrize(
    ("path", "allow"), [("/v1/responses/resp_1", "DELETE, GET, OPTIONS"), ("/livez", "GET, OPTIONS")]
)
async def test_options_names_every_method(client, path, allow):
    answer = await client.options(path)
    assert (answer.status_code, answer.headers["allow"], answer.content) == (204, allow, b"")


async def test_model_ids_may_hold_slashes(client):
    assert (await client.get("/v1/models")).json()["object"] == "list"
    assert (await client.get("/v1/models/org/model-7b")).json() == {"id": "org/model-7b"}


async def test_parts_are_opened_and_closed(build):
    upstream = FakeUpstream()
    gateway = build({"default": upstream})
    async with gateway.lifespan():
        assert upstream.log == gateway.parts.engine.usage.log == ["start"]
    assert upstream.log == gateway.parts.engine.usage.log == ["start", "close"]


async def test_what_was_counted_last_is_counted_at_the_end(build):
    gateway = build({"default": FakeUpstream()})
    metrics = gateway.parts.metrics
    async with gateway.lifespan():
        metrics.defer(metrics.client_disconnects_total)
    assert read_values(metrics.client_disconnects_total) == {(): 1}


async def test_a_drain_reaches_engine_and_readiness(build):
    gateway = build({"default": FakeUpstream()})
    assert (await gateway.parts.readiness.check()).ready
    gateway.begin_drain()
    assert gateway.parts.engine.draining
    assert not (await gateway.parts.readiness.check()).ready
    assert await gateway.drained(1.0)
    assert gateway.cut_off() == 3


def test_listening_off_loopback_without_names_warns(build, caplog):
    with caplog.at_level(logging.WARNING):
        build(host="0.0.0.0")
    assert "allowed_hosts" in caplog.text
    assert "without a key" in caplog.text


async def test_listed_origins_may_read_answers(build):
    transport = httpx.ASGITransport(app=build(allowed_origins=("https://chat.example",)).public)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        preflight = await client.options(
            "/v1/responses", headers={"origin": "https://chat.example", "access-control-request-method": "POST"}
        )
        answer = await client.post("/v1/responses", headers={"origin": "https://chat.example"})
    assert preflight.status_code == 204
    assert answer.headers["access-control-allow-origin"] == "https://chat.example"


async def test_a_store_that_cannot_start_is_a_start_error(tmp_path):
    config = GatewayConfig(
        storage=StorageConfig(url=SecretUrl(f"sqlite:///{tmp_path}/missing/responses.db")),
        admin=AdminConfig(enabled=False),
    )
    gateway = Gateway(build_parts(config, upstreams={}, engine=FakeEngine(), endpoint=endpoint))
    with pytest.raises(StartError, match="missing"):
        async with gateway.lifespan():
            pass


def test_a_missing_file_of_authorities_is_a_start_error(tmp_path):
    upstream = UpstreamConfig(url="https://gpu", ca_file=str(tmp_path / "ca.pem"))
    with pytest.raises(StartError, match=r"ca_file of upstream 'gpu': .*ca\.pem: No such file"):
        build_parts(GatewayConfig(upstreams={"gpu": upstream}), store=MemoryStore())


def test_an_unknown_trace_exporter_is_a_start_error(monkeypatch):
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "nonsense")
    with pytest.raises(StartError, match="nonsense"):
        build_parts(GatewayConfig(), store=MemoryStore(), upstreams={}, engine=FakeEngine(), endpoint=endpoint)


# ---------------------------------------------------------------- reload


async def test_a_reload_reaches_every_part():
    gateway = Gateway(build_parts(GatewayConfig(), store=MemoryStore()))
    other = GatewayConfig(
        server=ServerConfig(max_request_body_bytes=40, allowed_hosts=("llm.example",)),
        upstream=UpstreamConfig(models=("x",), api_key=Secret("s3cret"), idle_timeout_seconds=7.0),
    )

    async def lend(scope, receive, send):
        """As the server does."""
        await gateway.public({**scope, "extensions": {CONNECTION_EXTENSION: Conversation()}}, receive, send)

    transport = httpx.ASGITransport(app=lend)
    async with httpx.AsyncClient(transport=transport, base_url="http://llm.example") as client:
        assert (await client.get("/livez")).status_code == 403
        reload = gateway.reload(other)
        assert {change.path for change in reload.applied} == {
            *("server.max_request_body_bytes", "server.allowed_hosts"),
            *("upstream.models", "upstream.api_key", "upstream.idle_timeout_seconds"),
        }
        assert reload.pending == ()
        assert gateway.config == other
        assert (await client.get("/livez")).status_code == 200
        assert (await client.post("/v1/responses", content=b" " * 41)).status_code == 413
        answer = await client.post("/v1/responses", json={"model": "y", "input": "hi"})
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
        assert gateway.parts.upstreams["default"].redact("s3cret") == "[redacted]"
    admin = httpx.ASGITransport(app=gateway.admin)
    async with httpx.AsyncClient(transport=admin, base_url="http://llm.example") as operator:
        assert (await operator.get("/livez")).status_code == 200


async def test_a_reload_that_fails_changes_nothing(monkeypatch):
    gateway = Gateway(build_parts(GatewayConfig(), store=MemoryStore()))

    def fail(*_):
        raise ZeroDivisionError

    monkeypatch.setattr("gateway.engine.service.Routing", fail)
    other = GatewayConfig(
        server=ServerConfig(max_request_body_bytes=40, allowed_hosts=("llm.example",)),
        upstream=UpstreamConfig(api_key=Secret("s3cret")),
    )
    with pytest.raises(ZeroDivisionError):
        gateway.reload(other)
    assert gateway.config == GatewayConfig()
    assert gateway.parts.upstreams["default"].redact("s3cret") == "s3cret"
    transport = httpx.ASGITransport(app=gateway.public)
    async with httpx.AsyncClient(transport=transport, base_url="http://llm.example") as client:
        assert (await client.get("/livez")).status_code == 403


def test_a_list_of_hosts_that_goes_away_warns_again(build, caplog):
    gateway = build(host="0.0.0.0", allowed_hosts=("llm.example",))
    assert "allowed_hosts" not in caplog.text
    gateway.reload(GatewayConfig(server=ServerConfig(host="0.0.0.0")))
    assert "allowed_hosts" in caplog.text
