import asyncio
import json
import logging

import pytest
from litestar.exceptions import NotFoundException
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from uvicorn.protocols.utils import ClientDisconnected

from gateway.ports import LOCAL, Identity
from gateway.protocol.errors import NotFound, Unauthorized, Unavailable
from gateway.protocol.ids import UuidIds, is_minted
from gateway.telemetry.logs import request_id_var, response_id_var
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing
from gateway.transport.auth import Unauthenticated
from gateway.transport.connection import SURPLUS_EXTENSION
from gateway.transport.edge import Edge
from gateway.transport.hosts import HostPolicy
from gateway.transport.protocol import HeadTooLarge
from gateway.transport.proxies import TrustedProxies


class SteppingClock:
    def __init__(self):
        self.seconds = 0.0

    def now(self):
        return self.seconds

    def monotonic(self):
        self.seconds += 0.25
        return self.seconds


class Harness:
    """An edge around a handler, with everything it records within reach."""

    def __init__(self):
        self.metrics = Metrics()
        self.spans = InMemorySpanExporter()
        self.scope = None

    def wrap(self, handler=None, authenticator=None, proxies=None, origins=()):
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.spans))
        return Edge(
            handler or self.answer,
            policy=HostPolicy("127.0.0.1", allowed_origins=origins),
            authenticator=authenticator or Unauthenticated(),
            proxies=proxies,
            metrics=self.metrics,
            tracing=Tracing(provider),
            clock=SteppingClock(),
            ids=UuidIds(),
        )

    async def answer(self, scope, receive, send):
        self.scope = scope
        scope["path_template"] = "/v1/things/{thing_id}"
        response_id_var.set("resp_1")
        await send({"type": "http.response.start", "status": 200, "headers": [(b"x-own", b"1")]})
        await send({"type": "http.response.body", "body": b"{}"})

    def counted(self, **labels):
        return self.metrics.registry.get_sample_value("gateway_requests_total", labels)


@pytest.fixture
def harness():
    return Harness()


async def test_every_answer_has_a_request_id(harness, call):
    answer = await call(harness.wrap(), "GET", "/v1/things/1")
    assert is_minted(answer.headers["x-request-id"])
    assert answer.headers["x-own"] == "1"
    assert harness.scope["state"] == {"request_id": answer.headers["x-request-id"], "identity": LOCAL}


async def test_a_sane_request_id_of_the_caller_is_kept(harness, call):
    answer = await call(harness.wrap(), "GET", "/", headers={"x-request-id": "Job-1.2_3"})
    assert answer.headers["x-request-id"] == "Job-1.2_3"


@pytest.mark.parametrize("sent", ["", "a b", "a" * 129, "x\ty", "ä"])
def test_any_other_request_id_is_replaced(harness, sent):
    minted = harness.wrap()._request_id(sent.encode())
    assert is_minted(minted)


async def test_refusals_are_counted_logged_and_carry_the_id(harness, call, caplog):
    with caplog.at_level(logging.INFO, "gateway.access"):
        answer = await call(harness.wrap(), "GET", "/", headers={"host": "evil.example"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "host_not_allowed")
    assert is_minted(answer.headers["x-request-id"])
    assert harness.counted(route="other", method="GET", status="403") == 1
    assert caplog.records[0].status == 403


async def ask(app, path, extensions, send):
    scope = {"type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "extensions": extensions}
    await app(scope | {"headers": [(b"host", b"localhost")]}, None, send)


@pytest.mark.parametrize(
    ("path", "extensions", "status"),
    [
        ("/v1/models", {SURPLUS_EXTENSION: True}, 503),
        ("/livez", {SURPLUS_EXTENSION: True}, 200),
        ("/v1/models", {}, 200),
        ("/v1/models", None, 200),
    ],
)
async def test_a_connection_too_many_may_only_ask_whether_the_process_lives(harness, path, extensions, status):
    sent = []

    async def send(message):
        sent.append(message)

    await ask(harness.wrap(), path, extensions, send)
    assert sent[0]["status"] == status
    assert status == 200 or b"max_connections" in sent[1]["body"]


async def test_a_handler_the_server_cancels_ends_without_a_word(harness):
    reached = asyncio.Event()

    async def wait(scope, receive, send):
        reached.set()
        await asyncio.Event().wait()

    serving = asyncio.create_task(ask(harness.wrap(wait), "/", {}, None))
    await reached.wait()
    serving.cancel()
    await serving
    assert harness.counted(route="other", method="GET", status="499") == 1


async def test_what_never_became_a_request_is_counted_and_logged_under_an_id(harness, caplog):
    with caplog.at_level(logging.INFO, "gateway.access"):
        minted = harness.wrap().note_refusal(HeadTooLarge("The head is larger than 7 bytes."))
    assert is_minted(minted)
    assert request_id_var.get() is None
    assert harness.counted(route="other", method="other", status="431") == 1
    assert caplog.records[0].status == 431
    rejections = harness.metrics.registry.get_sample_value
    assert rejections("gateway_rejections_total", {"key": "server.max_header_bytes"}) == 1


async def test_metrics_use_the_route_template(harness, call):
    await call(harness.wrap(), "GET", "/v1/things/77")
    route = "/v1/things/{thing_id}"
    assert harness.counted(route=route, method="GET", status="200") == 1
    assert harness.metrics.registry.get_sample_value("gateway_request_seconds_sum", {"route": route}) == 0.25


async def test_made_up_methods_do_not_make_series(harness, call):
    await call(harness.wrap(), "BREW", "/")
    assert harness.counted(route="/v1/things/{thing_id}", method="other", status="200") == 1


async def test_the_access_line_has_the_encoded_path_without_query(harness, call, caplog):
    with caplog.at_level(logging.INFO, "gateway.access"):
        await call(harness.wrap(), "GET", "/a%0Ab?token=secret")
    (line,) = [record for record in caplog.records if record.name == "gateway.access"]
    assert (line.method, line.path, line.status, line.ms) == ("GET", "/a%0Ab", 200, 250.0)


async def test_one_span_named_by_the_route(harness, call):
    await call(harness.wrap(), "GET", "/v1/things/1")
    (span,) = harness.spans.get_finished_spans()
    assert span.name == "GET /v1/things/{thing_id}"
    assert span.attributes["http.response.status_code"] == 200


async def test_probes_are_in_no_trace(harness, call):
    await call(harness.wrap(), "GET", "/livez")
    assert harness.spans.get_finished_spans() == ()


async def test_the_query_is_in_no_span(harness, call):
    await call(harness.wrap(), "GET", "/v1/things/1?api_key=secret")
    (span,) = harness.spans.get_finished_spans()
    assert span.attributes["url.path"] == "/v1/things/1"
    assert "secret" not in span.to_json()


async def test_an_error_before_the_answer_becomes_one(harness, call, caplog):
    async def fail(scope, receive, send):
        raise RuntimeError("detail")

    answer = await call(harness.wrap(fail), "GET", "/")
    assert (answer.status_code, answer.json()["error"]["code"]) == (500, "server_error")
    assert "detail" not in answer.text
    assert harness.spans.get_finished_spans()[0].attributes["error.type"] == "500"


async def test_an_error_after_the_answer_began_is_left_to_the_server(harness):
    async def fail(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        raise RuntimeError("broke off")

    sent = []

    async def send(message):
        sent.append(message["type"])

    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "headers": [(b"host", b"localhost")]}
    with pytest.raises(RuntimeError, match="broke off"):
        await harness.wrap(fail)(scope, None, send)
    assert sent == ["http.response.start"]


@pytest.mark.parametrize("begun", [False, True])
async def test_a_client_that_left_counts_as_499(harness, begun):
    async def leave(scope, receive, send):
        if begun:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            scope["state"]["client_left"] = True

    async def send(message):
        pass

    scope = {"type": "http", "method": "GET", "path": "/", "raw_path": b"/", "headers": [(b"host", b"localhost")]}
    await harness.wrap(leave)(scope, None, send)
    assert harness.counted(route="other", method="GET", status="499") == 1


# ---------------------------------------------------------------- WebSockets


class Upgrade:
    """An upgrade as the server hands it to the app, and what is answered.

    Args:
        headers: further headers; one of the same name replaces that of a caller on this machine.
        gone: the client has left already.
    """

    def __init__(self, *headers, gone=False):
        self.scope = {
            "type": "websocket",
            "path": "/v1/things/7",
            "raw_path": b"/v1/things/7",
            "headers": [*headers, (b"host", b"localhost")],
            "extensions": {"websocket.http.response": {}},
            "state": {},
        }
        self.gone = gone
        self.sent = []

    async def send(self, message):
        if self.gone:
            raise ClientDisconnected
        self.sent.append(message)

    @property
    def kinds(self):
        return [message["type"].removeprefix("websocket.") for message in self.sent]

    @property
    def headers(self):
        return dict(self.sent[0]["headers"])


async def accept(scope, receive, send):
    scope["path_template"] = "/v1/things/{thing_id}"
    await send({"type": "websocket.accept", "subprotocol": None, "headers": [(b"x-own", b"1")]})


async def test_an_accepted_websocket_is_a_get_answered_101_until_it_ends(harness, caplog):
    upgrade = Upgrade((b"x-request-id", b"mine"))
    with caplog.at_level(logging.INFO, "gateway.access"):
        await harness.wrap(accept)(upgrade.scope, None, upgrade.send)
    assert upgrade.kinds == ["accept"]
    assert upgrade.headers == {b"x-own": b"1", b"x-request-id": b"mine"}
    assert upgrade.scope["state"] == {"request_id": "mine", "identity": LOCAL}
    (line,) = [record for record in caplog.records if record.name == "gateway.access"]
    assert (line.method, line.path, line.status, line.ms) == ("GET", "/v1/things/7", 101, 250.0)
    route = "/v1/things/{thing_id}"
    assert harness.counted(route=route, method="GET", status="101") == 1
    assert harness.metrics.registry.get_sample_value("gateway_request_seconds_count", {"route": route}) is None
    (span,) = harness.spans.get_finished_spans()
    assert (span.name, span.attributes["http.response.status_code"]) == (f"GET {route}", 101)


async def test_the_span_of_a_websocket_ends_with_its_upgrade(harness):
    ended = []

    async def go_on(scope, receive, send):
        await accept(scope, receive, send)
        ended.extend(harness.spans.get_finished_spans())

    upgrade = Upgrade()
    await harness.wrap(go_on)(upgrade.scope, None, upgrade.send)
    assert [span.name for span in ended] == ["GET /v1/things/{thing_id}"]
    assert len(harness.spans.get_finished_spans()) == 1


async def test_a_websockets_records_carry_its_request_id(harness):
    seen = []

    async def look(scope, receive, send):
        seen.append((request_id_var.get(), response_id_var.get()))

    response_id_var.set("resp_of_another")
    await harness.wrap(look)(Upgrade((b"x-request-id", b"mine")).scope, None, None)
    assert seen == [("mine", None)]


@pytest.mark.parametrize(
    ("header", "code"),
    [((b"host", b"evil.example"), "host_not_allowed"), ((b"origin", b"https://evil.example"), "origin_not_allowed")],
)
async def test_strangers_get_no_websocket(harness, header, code):
    upgrade = Upgrade(header)
    await harness.wrap(accept)(upgrade.scope, None, upgrade.send)
    assert upgrade.kinds == ["http.response.start", "http.response.body"]
    assert upgrade.sent[0]["status"] == 403
    assert json.loads(upgrade.sent[1]["body"])["error"]["code"] == code
    assert harness.counted(route="other", method="GET", status="403") == 1


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (Unavailable("The gateway is shutting down."), 503, "server_is_overloaded"),
        (NotFoundException(), 404, "route_not_found"),
        (RuntimeError("detail"), 500, "server_error"),
    ],
)
async def test_an_error_before_the_acceptance_denies_it(harness, error, status, code):
    async def fail(scope, receive, send):
        raise error

    upgrade = Upgrade()
    await harness.wrap(fail)(upgrade.scope, None, upgrade.send)
    assert upgrade.kinds == ["http.response.start", "http.response.body"]
    assert upgrade.sent[0]["status"] == status
    assert is_minted(upgrade.headers[b"x-request-id"].decode())
    assert upgrade.headers[b"content-type"] == b"application/json"
    assert (b"retry-after" in upgrade.headers) == (status == 503)
    assert json.loads(upgrade.sent[1]["body"])["error"]["code"] == code
    assert upgrade.sent[1]["more_body"] is False
    assert harness.counted(route="other", method="GET", status=str(status)) == 1


async def test_an_error_after_the_acceptance_is_left_to_the_server(harness):
    async def fail(scope, receive, send):
        await accept(scope, receive, send)
        raise RuntimeError("broke off")

    upgrade = Upgrade()
    with pytest.raises(RuntimeError, match="broke off"):
        await harness.wrap(fail)(upgrade.scope, None, upgrade.send)
    assert upgrade.kinds == ["accept"]
    assert harness.counted(route="/v1/things/{thing_id}", method="GET", status="101") == 1


async def test_a_client_that_leaves_before_the_acceptance_counts_as_499(harness):
    upgrade = Upgrade(gone=True)
    await harness.wrap(accept)(upgrade.scope, None, upgrade.send)
    assert harness.counted(route="/v1/things/{thing_id}", method="GET", status="499") == 1


async def test_a_websocket_the_server_cuts_off_was_answered_all_the_same(harness):
    reached = asyncio.Event()

    async def wait(scope, receive, send):
        await accept(scope, receive, send)
        reached.set()
        await asyncio.Event().wait()

    upgrade = Upgrade()
    serving = asyncio.create_task(harness.wrap(wait)(upgrade.scope, None, upgrade.send))
    await reached.wait()
    serving.cancel()
    await serving
    assert harness.counted(route="/v1/things/{thing_id}", method="GET", status="101") == 1


class Strict:
    """An authenticator that remembers one credential and has to ask for another."""

    def __init__(self):
        self.asked = []

    def recall(self, credential):
        return Identity(principal="known") if credential == b"Bearer known" else None

    async def authenticate(self, credential):
        self.asked.append(credential)
        if credential != b"Bearer new":
            raise Unauthorized("No.")
        return Identity(principal="new")

    def holds(self, identity):
        return True


async def test_a_remembered_credential_is_not_asked_for(harness, call):
    strict = Strict()
    answer = await call(harness.wrap(authenticator=strict), "GET", "/", headers={"authorization": "Bearer known"})
    assert (answer.status_code, harness.scope["state"]["identity"].principal, strict.asked) == (200, "known", [])


async def test_an_unknown_credential_is_asked_for(harness, call):
    strict = Strict()
    answer = await call(harness.wrap(authenticator=strict), "GET", "/", headers={"authorization": "Bearer new"})
    assert (answer.status_code, harness.scope["state"]["identity"].principal, strict.asked) == (
        200,
        "new",
        [b"Bearer new"],
    )


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer other"}])
async def test_a_stranger_gets_no_further(harness, call, headers):
    answer = await call(harness.wrap(authenticator=Strict()), "GET", "/", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"], harness.scope) == (401, "invalid_api_key", None)


@pytest.mark.parametrize("other", ["Bearer new", "Bearer known", "Basic x", ""])
async def test_of_two_credentials_neither_counts(harness, call, other):
    for values in (("Bearer known", other), (other, "Bearer known"), ("Bearer known", other, "Bearer known")):
        headers = [("authorization", value) for value in values]
        answer = await call(harness.wrap(authenticator=Strict()), "GET", "/", headers=headers)
        assert (answer.status_code, harness.scope) == (401, None)


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/health", "/version", "/openapi.json", "/docs"])
async def test_probes_and_the_description_need_no_credential(harness, call, path):
    strict = Strict()
    answer = await call(harness.wrap(authenticator=strict), "GET", path)
    assert (answer.status_code, strict.asked) == (200, [])


def noted(harness):
    return [(error.route, error.status, error.code, error.response_id) for error in harness.metrics.last_errors.list()]


async def test_an_error_is_remembered_with_its_route_and_ids(harness, call):
    async def refuse(scope, receive, send):
        scope["path_template"] = "/v1/things"
        response_id_var.set("resp_1")
        raise Unavailable("Too busy.")

    answer = await call(harness.wrap(refuse), "GET", "/v1/things")
    assert noted(harness) == [("/v1/things", 503, "server_is_overloaded", "resp_1")]
    assert harness.metrics.last_errors.list()[0].request_id == answer.headers["x-request-id"]


async def test_a_status_that_is_no_error_of_ours_is_not_remembered(harness, call):
    async def not_ready(scope, receive, send):
        await send({"type": "http.response.start", "status": 503, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    assert (await call(harness.wrap(not_ready), "GET", "/readyz")).status_code == 503
    assert noted(harness) == []


async def test_whoever_tries_all_paths_drives_out_nothing(harness, call):
    async def lose(scope, receive, send):
        raise NotFound("There is no such route.", code="route_not_found")

    assert (await call(harness.wrap(lose), "GET", "/admin.php")).status_code == 404
    assert (await call(harness.wrap(authenticator=Strict()), "GET", "/v1/models")).status_code == 401
    assert noted(harness) == []


async def test_a_page_of_a_listed_origin_may_read_that_it_needs_a_key(harness, call):
    app = harness.wrap(authenticator=Strict(), origins=["https://chat.example"])
    answer = await call(app, "GET", "/", headers={"origin": "https://chat.example"})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, "https://chat.example")
    assert (answer.headers["vary"], answer.headers["www-authenticate"]) == ("Origin", "Bearer")
    for origin in ("http://localhost:3000", "https://evil.example"):
        answer = await call(app, "GET", "/", headers={"origin": origin})
        assert "access-control-allow-origin" not in answer.headers


async def test_a_preflight_needs_no_key(harness, call):
    answer = await call(harness.wrap(authenticator=Strict()), "OPTIONS", "/v1/responses")
    assert answer.status_code == 200


async def test_whom_a_proxy_names_is_not_asked_for_a_key(harness, call):
    proxies = TrustedProxies("x-user", ["127.0.0.1"], required=False)
    strict = Strict()
    app = harness.wrap(authenticator=strict, proxies=proxies)
    answer = await call(app, "GET", "/", headers={"x-user": "ada", "authorization": "Bearer known"})
    assert (answer.status_code, harness.scope["state"]["identity"]) == (200, Identity(principal="ada"))
    answer = await call(app, "GET", "/", headers={"authorization": "Bearer known"})
    assert harness.scope["state"]["identity"].principal == "known"
    assert (await call(app, "GET", "/")).status_code == 401
    assert strict.asked == [None]
    answer = await call(app, "GET", "/livez", headers={"x-user": "two words"})
    assert answer.status_code == 200


async def test_whoever_is_no_proxy_is_not_believed(harness, call):
    proxies = TrustedProxies("x-user", ["10.0.0.0/8"], required=True)
    answer = await call(harness.wrap(proxies=proxies), "GET", "/", headers={"x-user": "ada"})
    assert (answer.status_code, harness.scope["state"]["identity"]) == (200, LOCAL)


async def test_the_access_line_names_who_called_where_callers_are_told_apart(harness, call, caplog):
    with caplog.at_level(logging.INFO, "gateway.access"):
        await call(harness.wrap(authenticator=Strict()), "GET", "/", headers={"authorization": "Bearer known"})
        await call(harness.wrap(), "GET", "/")
    assert [record.fields.get("principal") for record in caplog.records] == ["known", None]
