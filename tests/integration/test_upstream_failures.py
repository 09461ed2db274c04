"""Inference servers that lie or are down, as callers and operators of a running gateway see them."""

import asyncio
import json
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme
from conformance.verdict import judge_stream
from harness.client import Answer, Client, create
from harness.engine import says
from harness.processes import Gateway, free_port
from harness.upstream import Reply, Request, Script, Upstream

ANSWER = json.dumps(says("well").response).encode()
STREAM = b"".join(says("well").frames())


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=20) as answer:
        return answer.read()


def ask(gateway: Gateway, model: str, *, stream: bool = False) -> Answer:
    return create(gateway.port, {"model": model, "input": "hi", "stream": stream})


# ---------------------------------------------------------------- answers that lie


async def promise_too_much(request: Request, reply: Reply) -> None:
    await reply.head(200, "application/json", len(ANSWER) + 10)
    await reply.send(ANSWER)
    reply.cut()


async def promise_too_little(request: Request, reply: Reply) -> None:
    await reply.head(200, "application/json", len(ANSWER) - 10)
    await reply.send(ANSWER)


async def drip(request: Request, reply: Reply) -> None:
    await reply.head(200, "application/json")
    while True:
        await reply.send(b" ")
        await asyncio.sleep(0.05)


async def send_a_line_without_end(request: Request, reply: Reply) -> None:
    await reply.head()
    await reply.send(b"data: " + b"x" * (1 << 20))
    await reply.end()


def expect_health(gateway: Gateway, upstream: Upstream, model: str) -> None:
    """Nothing was kept of the failed call, and the next one succeeds."""
    assert gateway.rows(model) == 0
    healthy = ask(gateway, upstream.script("honest", says("well")), stream=True)
    assert judge_stream(healthy.body) == []
    assert healthy.deltas() == "well"


@pytest.mark.parametrize(
    ("script", "code"), [(promise_too_much, "upstream_error"), (promise_too_little, "upstream_invalid_body")]
)
def test_a_false_length(gateway: Gateway, upstream: Upstream, script: Script, code: str) -> None:
    model = upstream.script(script.__name__, script)
    answer = ask(gateway, model)
    assert (answer.status, answer.error["code"]) == (502, code), answer.body
    expect_health(gateway, upstream, model)


def test_a_mebibyte_without_a_line_break(gateway: Gateway, upstream: Upstream) -> None:
    model = upstream.script("line without end", send_a_line_without_end)
    answer = ask(gateway, model, stream=True)
    assert judge_stream(answer.body) == []
    assert (answer.status, answer.final["status"]) == (200, "failed")
    assert "without a terminal event" in answer.final["error"]["message"]
    expect_health(gateway, upstream, model)


def test_a_body_that_drips_for_ever(start_gateway: Callable[..., Gateway], upstream: Upstream) -> None:
    gateway = start_gateway({"upstream.idle_timeout_seconds": "1.5", "upstream.total_timeout_seconds": "2"})
    model = upstream.script("drip", drip)
    answer = ask(gateway, model)
    assert (answer.status, answer.error["code"]) == (504, "upstream_timeout")
    assert "total_timeout_seconds" in answer.error["message"]
    assert upstream.await_call(model).left.wait(20)
    expect_health(gateway, upstream, model)


# ---------------------------------------------------------------- the breaker and the retries


def test_a_server_that_is_down_is_left_alone_and_found_again(
    tmp_path: Path, start_gateway: Callable[..., Gateway]
) -> None:
    port, admin = free_port(), free_port()
    settings = {
        "admin.enabled": "true",
        "admin.bind": f"127.0.0.1:{admin}",
        "upstream.breaker_failures": "2",
        "upstream.breaker_open_seconds": "3",
        "upstream.health_interval_seconds": "1h",  # so that a call finds out
        "upstream.dialect": "vllm",
    }
    gateway = start_gateway(settings, f"http://127.0.0.1:{port}")

    def metrics() -> str:
        return get(f"http://127.0.0.1:{admin}/metrics").decode()

    assert [ask(gateway, "m", stream=stream).status for stream in (False, True)] == [502, 502]
    for stream in (False, True):
        refused = ask(gateway, "m", stream=stream)
        assert refused.status == 503
        assert refused.error["type"] == "service_unavailable_error"
        assert refused.error["code"] == "server_is_overloaded"
        assert refused.headers["retry-after"] in {"1", "2", "3"}
    shown = metrics()
    assert 'gateway_upstream_breaker_state{upstream="default"} 2.0' in shown
    assert 'gateway_upstream_connect_retries_total{upstream="default"} 4.0' in shown
    assert 'gateway_upstream_requests_total{status="unavailable"} 2.0' in shown
    assert 'gateway_upstream_requests_total{status="breaker_open"} 2.0' in shown
    caller = Client(gateway.port)
    assert b"circuit breaker open" in caller.get("/readyz?verbose").body
    caller.close()
    gateway.await_log("upstream default: circuit breaker open")
    with Upstream(port=port) as upstream:
        upstream.otherwise(says("well"))
        deadline = time.monotonic() + 20
        while (answer := ask(gateway, "m")).status == 503 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert answer.status == 200
        assert ask(gateway, "m", stream=True).deltas() == "well"
    gateway.await_log("upstream default: circuit breaker closed")
    assert 'gateway_upstream_breaker_state{upstream="default"} 0.0' in metrics()
    assert gateway.rows() == 2


# ---------------------------------------------------------------- TLS


class Inference(BaseHTTPRequestHandler):
    """The least of an inference server."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if asked.get("stream"):
            self._send(STREAM, "text/event-stream")
        else:
            self._send(ANSWER, "application/json")

    def do_GET(self) -> None:
        self._send(b"{}", "application/json")

    def _send(self, body: bytes, content_type: str) -> None:
        self.send_response(200)
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def secure_url(authority: trustme.CA) -> Iterator[str]:
    """The URL of an inference server behind TLS."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Inference)
    server.daemon_threads = True
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"https://localhost:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_private_authority(
    start_gateway: Callable[..., Gateway], authority: trustme.CA, secure_url: str, tmp_path: Path
) -> None:
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    gateway = start_gateway({"upstream.ca_file": str(ca_file)}, secure_url)
    assert ask(gateway, "m").json["status"] == "completed"
    streamed = ask(gateway, "m", stream=True)
    assert judge_stream(streamed.body) == []
    assert streamed.deltas() == "well"


def test_an_authority_nobody_named(start_gateway: Callable[..., Gateway], secure_url: str) -> None:
    gateway = start_gateway(url=secure_url)
    for stream in (False, True):
        answer = ask(gateway, "m", stream=stream)
        assert (answer.status, answer.error["code"]) == (502, "upstream_unavailable")
        assert "certificate is not trusted" in answer.error["message"]
        assert "localhost" not in answer.error["message"]


def test_no_verification(start_gateway: Callable[..., Gateway], secure_url: str) -> None:
    gateway = start_gateway({"upstream.tls_verify": "false"}, secure_url)
    assert ask(gateway, "m", stream=True).deltas() == "well"
