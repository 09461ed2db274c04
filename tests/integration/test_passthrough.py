"""Further paths of the inference server, passed on to the byte."""

import asyncio
import http.client
import json
import socket
import time
from contextlib import closing

import pytest
from harness.client import Client, read_until
from harness.processes import Gateway, free_port
from harness.upstream import Upstream

CHAT = "/v1/chat/completions"
EMBEDDINGS = "/v1/embeddings"
PATHS = [CHAT, EMBEDDINGS, "/score"]
SETTINGS = {
    "upstream.passthrough": json.dumps(PATHS),
    "upstream.api_key": "the-gateways-own-key",
    "upstream.forward_headers": '["x-tenant"]',
    "upstream.breaker_failures": "0",
    "server.max_request_body_bytes": "100000",
    "server.socket_send_buffer_bytes": "4096",
}
# The target is 0.1 s; a loaded machine gets some slack, and `-rP` shows the times measured.
NOTICE_SECONDS = 1.0
# A machine stalls now and then, but not each time.
CLIENTS = 3
# A byte of every kind, and nothing that is JSON.
BINARY = bytes(range(256)) * 300


@pytest.fixture(scope="module")
def engine():
    """A scripted server of this module's own; each test says how it answers."""
    with Upstream() as running:
        yield running


@pytest.fixture(scope="module")
def admin_port():
    return free_port()


@pytest.fixture(scope="module")
def relaying(engine, admin_port, tmp_path_factory):
    admin = {"admin.enabled": "true", "admin.bind": f"127.0.0.1:{admin_port}"}
    with Gateway(tmp_path_factory.mktemp("gateway"), engine.url, {**SETTINGS, **admin}) as running:
        yield running


@pytest.fixture(scope="module")
def hasty(engine, tmp_path_factory):
    """A gateway whose limits are to end: for a server that falls silent, and for a client that does not read."""
    limits = {"upstream.idle_timeout_seconds": "1.5", "server.send_deadline_seconds": "0.5"}
    with Gateway(tmp_path_factory.mktemp("hasty"), engine.url, {**SETTINGS, **limits}) as running:
        yield running


@pytest.fixture
def call(relaying):
    with closing(Client(relaying.port)) as client:
        yield client.call


def last(engine):
    request = engine.requests[-1]
    assert request.ended.wait(20)
    return request


def answers(body, status=200, content_type="application/json", **headers):
    async def script(request, reply):
        await reply.whole(body, status, content_type, **headers)

    return script


def open_post(port, path, body=b"{}", receive_buffer=None):
    connection = socket.socket()
    connection.settimeout(30)
    if receive_buffer is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    connection.connect(("127.0.0.1", port))
    connection.sendall(
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    )
    return connection


# ---------------------------------------------------------------- to the byte


@pytest.mark.parametrize(
    ("status", "body", "content_type"),
    [
        (200, b'{"a": 1.0,\n "b":"\\u00e4",  "a":2}', "application/json"),
        (200, BINARY, "application/octet-stream"),
        (200, b"", "text/plain"),
        (201, b"made", "text/plain; charset=latin-1"),
        (400, b'{"error": {"message": "no", "code": 400}}', "application/json"),
        (404, b'{"detail":"Not Found"}', "application/json"),
        (422, b"<html>unprocessable", "text/html"),
        (500, b"oops", "text/plain"),
        (599, b"", "text/plain"),
    ],
)
def test_an_answer_arrives_as_it_was_sent(engine, call, status, body, content_type):
    engine.route(
        EMBEDDINGS, answers(body, status, content_type, X_Model_Time="7", Server="engine/1", X_Request_Id="own")
    )
    sent = b'{ "model" : "m", "input":[ "\\ud800" ] , "n": 1e2 }'
    answer = call("POST", EMBEDDINGS, sent)
    assert (answer.status, answer.body) == (status, body)
    assert answer.headers["content-type"] == content_type
    assert answer.headers["content-length"] == str(len(body))
    assert answer.headers["x-model-time"] == "7"
    assert "server" not in answer.headers
    assert answer.headers["x-request-id"].startswith("req_")
    assert last(engine).raw == sent


def test_an_answer_without_a_body_is_none(engine, call):
    async def script(request, reply):
        await reply.head(204, "text/plain", 5)

    engine.route(EMBEDDINGS, script)
    answer = call("POST", EMBEDDINGS, b"{}")
    assert (answer.status, answer.body) == (204, b"")
    assert not {"content-length", "transfer-encoding"} & set(answer.headers)
    assert call("POST", EMBEDDINGS, b"{}").status == 204


def test_a_stream_arrives_piece_by_piece_and_unchanged(engine, relaying):
    pieces = [b": ping\n\n", b'data: {"choices":[{"delta":{"content":"\xc3', b'\xa4"}}]}\n\n', b"data: [DONE]\n\n"]
    turns = [asyncio.Event() for _ in pieces]

    async def script(request, reply):
        await reply.head(200, "text/event-stream; charset=utf-8")
        for piece, turn in zip(pieces, turns, strict=True):
            await turn.wait()
            await reply.send(piece)
        await reply.end()

    engine.route(CHAT, script)
    connection = http.client.HTTPConnection("127.0.0.1", relaying.port, timeout=30)
    with closing(connection):
        connection.request("POST", CHAT, b'{"stream":true}')
        # The head is there before any of the body is.
        answer = connection.getresponse()
        assert (answer.status, answer.getheader("content-type")) == (200, "text/event-stream; charset=utf-8")
        for piece, turn in zip(pieces, turns, strict=True):
            engine._loop.call_soon_threadsafe(turn.set)
            assert answer.read(len(piece)) == piece
        assert answer.read() == b""


def test_what_is_compressed_stays_so(engine, call):
    engine.route(EMBEDDINGS, answers(b"\x1f\x8b\x08 not really", Content_Encoding="gzip"))
    answer = call("POST", EMBEDDINGS, b"\x1f\x8b asked", {"Accept-Encoding": "gzip", "Content-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.body == b"\x1f\x8b\x08 not really"
    assert last(engine).headers["accept-encoding"] == "gzip"
    assert last(engine).headers["content-encoding"] == "gzip"
    assert last(engine).raw == b"\x1f\x8b asked"


def test_the_query_is_passed_on_and_decides_nothing(engine, call):
    engine.route("/score", answers(b"{}"))
    assert call("POST", "/score?a=%2e%2e%2F..&b=/v1/responses", b"{}").status == 200
    assert (last(engine).path, last(engine).query) == ("/score", "a=%2e%2e%2F..&b=/v1/responses")


# ---------------------------------------------------------------- headers


def test_only_a_few_headers_of_the_caller_reach_the_server(engine, call):
    engine.route(EMBEDDINGS, answers(b"{}"))
    sent = {
        "Authorization": "Bearer the-callers",
        "Cookie": "secret=1",
        "X-Api-Key": "the-callers",
        "X-Tenant": "a",
        "X-Other": "b",
        "Accept": "application/json",
        "Content-Type": "application/json; charset=utf-8",
        "User-Agent": "somebody",
        "Connection": "keep-alive, x-tenant-2",
        "Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    assert call("POST", EMBEDDINGS, b"{}", sent).status == 200
    received = last(engine).headers
    assert received.pop("user-agent").startswith("responses-gateway/")
    assert received.pop("host") == f"127.0.0.1:{engine.port}"
    assert received == {
        "authorization": "Bearer the-gateways-own-key",
        "x-tenant": "a",
        "accept": "application/json",
        "accept-encoding": "identity",
        "content-type": "application/json; charset=utf-8",
        "content-length": "2",
        "traceparent": sent["Traceparent"],
    }


def test_headers_of_the_servers_connection_stay_there(engine, call):
    kept = {"Set_Cookie": "a=1", "Retry_After": "3", "Www_Authenticate": "Basic", "X_Kept": "1"}
    dropped = {"Connection": "x-dropped, keep-alive", "X_Dropped": "1", "Keep_Alive": "timeout=5", "Trailer": "x"}
    dropped["Access_Control_Allow_Origin"] = "*"
    engine.route(EMBEDDINGS, answers(b"{}", 503, **kept, **dropped, Proxy_Authenticate="Basic", Date="yesterday"))
    headers = call("POST", EMBEDDINGS, b"{}").headers
    assert {name.lower().replace("_", "-") for name in kept} <= set(headers)
    assert not {
        "connection",
        "x-dropped",
        "keep-alive",
        "trailer",
        "proxy-authenticate",
        "access-control-allow-origin",
    } & set(headers)
    assert headers["date"] != "yesterday"


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("status", [401, 403, 302])
def test_a_refusal_of_the_gateways_key_is_not_the_callers(engine, call, status):
    engine.route(EMBEDDINGS, answers(b"bad key: the-gateways-own-key", status, Location="http://10.0.0.1/"))
    answer = call("POST", EMBEDDINGS, b"{}")
    assert answer.status == 502
    assert answer.error["code"] == ("upstream_error" if status == 302 else "upstream_auth_failed")
    assert b"own-key" not in answer.body
    assert "location" not in answer.headers


@pytest.mark.parametrize(
    "path",
    [
        "/v1/completions",
        "/v1/embeddings/",
        "/v1/embeddings/..",
        "/v1//embeddings",
        "/v1/chat/completions/../../embeddings",
        "/v1/embeddings%2F..%2Ftokenize",
        "/V1/embeddings",
        "/v1/embeddings;x",
        "/metrics",
    ],
)
def test_every_other_path_is_unknown(engine, call, path):
    before = len(engine.requests)
    answer = call("POST", path, b"{}")
    assert (answer.status, answer.error["code"]) == (404, "route_not_found")
    assert len(engine.requests) == before


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_other_methods_are_not_taken(engine, call, method):
    before = len(engine.requests)
    answer = call(method, EMBEDDINGS)
    assert (answer.status, answer.headers["allow"]) == (405, "POST")
    assert answer.error["code"] == "method_not_allowed"
    assert len(engine.requests) == before


def test_a_body_above_the_bound_reaches_nobody(engine, call):
    before = len(engine.requests)
    answer = call("POST", EMBEDDINGS, b"x" * 100_001)
    assert (answer.status, answer.error["code"]) == (413, "request_too_large")
    assert len(engine.requests) == before


def test_a_web_page_of_another_origin_is_kept_out(call):
    assert call("POST", EMBEDDINGS, b"{}", {"Origin": "https://evil.example"}).status == 403


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(("length", "how"), [(None, "cut"), (100, "cut"), (None, "silent")])
def test_an_answer_that_breaks_off_never_looks_whole(engine, request, length, how):
    gateway = request.getfixturevalue("hasty" if how == "silent" else "relaying")

    async def script(request, reply):
        await reply.head(200, "text/event-stream", length)
        await reply.send(b"data: 1\n\n")
        if how == "silent":
            await asyncio.sleep(30)
        reply.cut()

    engine.route(CHAT, script)
    with (
        closing(Client(gateway.port)) as client,
        pytest.raises((http.client.IncompleteRead, ConnectionError)) as caught,
    ):
        client.call("POST", CHAT, b"{}")
    if isinstance(caught.value, http.client.IncompleteRead):
        assert caught.value.partial.endswith(b"data: 1\n\n") or not caught.value.partial
    assert gateway.await_log("/v1/chat/completions failed", '"warning"')
    assert "Traceback" not in gateway.log


def test_a_server_that_gives_no_answer_at_all(engine, call):
    async def script(request, reply):
        reply.cut()

    engine.route(EMBEDDINGS, script)
    answer = call("POST", EMBEDDINGS, b"{}")
    assert (answer.status, answer.error["code"]) == (502, "upstream_unavailable")


@pytest.mark.parametrize("started", [True, False])
def test_a_client_that_leaves_ends_the_call_at_once(engine, relaying, started):
    async def script(request, reply):
        if started:
            await reply.head()
            await reply.send(b"data: 1\n\n")
        await asyncio.sleep(30)

    engine.route(CHAT, script)
    noticed = []
    for _ in range(CLIENTS):
        before = len(engine.requests)
        connection = open_post(relaying.port, f"{CHAT}?left={started}")
        if started:
            read_until(connection, b"data: 1\n\n")
        while len(engine.requests) == before:
            time.sleep(0.005)
        left_at = time.monotonic()
        connection.close()
        noticed.append(engine.requests[-1].seconds_to_notice(left_at))
    print(f"the server knew after {', '.join(f'{seconds * 1000:.1f}' for seconds in noticed)} ms")
    assert min(noticed) < NOTICE_SECONDS
    relaying.await_log('"status":499', CHAT)


def test_a_client_that_stops_reading_holds_the_server_back_and_is_left(engine, hasty):
    sent = 0

    async def script(request, reply):
        nonlocal sent
        await reply.head(200, "application/octet-stream")
        while True:
            await reply.send(b"x" * 65536)
            sent += 65536

    engine.route(CHAT, script)
    before = len(engine.requests)
    with open_post(hasty.port, CHAT, receive_buffer=4096) as connection:
        read_until(connection, b"\r\n\r\n")
        assert len(engine.requests) == before + 1
        # Aborted by the send deadline; until then only what buffers on the way hold has been taken.
        assert engine.requests[-1].left.wait(20)
    assert sent < 30_000_000


# ---------------------------------------------------------------- the rules of responses


def test_calls_are_seen_in_metrics_and_in_the_log(engine, relaying, admin_port, call):
    engine.route("/score", answers(b"{}"))
    assert call("POST", "/score?secret=1", b"{}").status == 200
    assert "secret" not in relaying.await_log('"path":"/score","status":200')
    with closing(Client(admin_port)) as operator:
        metrics = operator.get("/metrics").body.decode()
    assert 'gateway_requests_total{method="POST",route="/score",status="200"}' in metrics
    assert 'gateway_upstream_requests_total{status="200"}' in metrics


def test_calls_count_as_responses_do_and_end_with_the_drain(engine, tmp_path):
    async def script(request, reply):
        await reply.head()
        await reply.send(b"data: 1\n\n")
        await asyncio.sleep(30)

    engine.route(CHAT, script)
    bounds = {"server.drain_seconds": "0.1", "server.max_concurrent_requests": "1"}
    with Gateway(tmp_path, engine.url, {**SETTINGS, **bounds}) as gateway, open_post(gateway.port, CHAT) as connection:
        read_until(connection, b"data: 1\n\n")
        with closing(Client(gateway.port)) as second:
            refused = second.call("POST", EMBEDDINGS, b"{}")
        assert (refused.status, refused.error["code"]) == (503, "server_is_overloaded")
        assert refused.headers["retry-after"]
        assert gateway.stop() == 0
        assert connection.recv(65536) == b""
        gateway.await_log("cut off 1 responses")


def test_models_and_aliases_choose_the_server(engine, tmp_path):
    with Upstream() as other:
        engine.route(EMBEDDINGS, answers(b'"engine"'))
        engine.route(CHAT, answers(b'"engine"'))
        other.route(EMBEDDINGS, answers(b'"other"'))
        settings = {
            "upstreams.a.url": engine.url,
            "upstreams.a.models": '["big"]',
            "upstreams.a.passthrough": json.dumps([CHAT, EMBEDDINGS]),
            "upstreams.b.url": other.url,
            "upstreams.b.models": '["small"]',
            "upstreams.b.aliases": '{tiny = "small"}',
            "upstreams.b.passthrough": json.dumps([EMBEDDINGS]),
        }
        flags = [flag for key, value in settings.items() for flag in ("--set", f"{key}={value}")]
        gateway = Gateway(tmp_path, engine.url)
        at = gateway._arguments.index("--upstream")
        gateway._arguments[at : at + 2] = flags
        with gateway, closing(Client(gateway.port)) as client:
            assert client.call("POST", EMBEDDINGS, b'{"model":"big"}').json == "engine"
            untouched = b'{"model" : "small", "n":1.00}'
            assert client.call("POST", EMBEDDINGS, untouched).json == "other"
            assert last(other).raw == untouched
            assert client.call("POST", EMBEDDINGS, b'{"x":  [1.00, "\\u00e4"],"model":"tiny"}').json == "other"
            assert last(other).raw == b'{"x":[1.00, "\\u00e4"],"model":"small"}'
            assert client.call("POST", EMBEDDINGS, b"no json at all").json == "engine"
            elsewhere = client.call("POST", CHAT, b'{"model":"small"}')
            assert (elsewhere.status, elsewhere.error["code"]) == (404, "model_not_found")
            assert client.call("POST", EMBEDDINGS, b'{"model":"unknown"}').error["code"] == "model_not_found"


@pytest.mark.full
def test_the_openai_library_chats_through_the_gateway(engine, relaying):
    from openai import OpenAI

    delta = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    whole = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}

    async def script(request, reply):
        if request.body.get("stream"):
            choices = [{"index": 0, "delta": {"content": text}, "finish_reason": None} for text in ("Hel", "lo")]
            events = [b"data: " + json.dumps({**delta, "choices": [choice]}).encode() + b"\n\n" for choice in choices]
            await reply.stream(*events, b"data: [DONE]\n\n")
        else:
            message = {"role": "assistant", "content": "Hello"}
            await reply.json({**whole, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]})

    engine.route(CHAT, script)
    engine.route(
        EMBEDDINGS,
        answers(b'{"object":"list","model":"m","data":[{"object":"embedding","index":0,"embedding":[0.5]}]}'),
    )
    with OpenAI(base_url=f"{relaying.url}/v1", api_key="unused", max_retries=0) as client:
        asked = {"model": "m", "messages": [{"role": "user", "content": "Hi"}]}
        assert client.chat.completions.create(**asked).choices[0].message.content == "Hello"
        stream = client.chat.completions.create(**asked, stream=True)
        assert "".join(chunk.choices[0].delta.content for chunk in stream) == "Hello"
        assert client.embeddings.create(model="m", input="a", encoding_format="float").data[0].embedding == [0.5]
