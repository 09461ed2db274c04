"""`gateway health` against listeners that answer what they are told."""

import json
import socket
import threading

import pytest
from cli.listener import listen
from click.testing import CliRunner

from gateway.cli.answers import local_url
from gateway.cli.main import cli


@pytest.fixture
def listener():
    with listen() as listener:
        yield listener


def run(*arguments):
    return CliRunner().invoke(cli, ["health", *arguments])


def test_who_answers_is_alive(listener):
    listener.answers = {"/livez": (200, b'{"live":true}')}
    result = run("--url", listener.url)
    assert (result.exit_code, result.output) == (0, f"{listener.url}: alive\n")


def test_it_asks_where_the_configuration_has_the_gateway_listen_and_no_proxy(listener, monkeypatch):
    listener.answers = {"/livez": (200, b"")}
    monkeypatch.setenv("GATEWAY_SERVER__PORT", str(listener.server_port))
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    overrides = ("server.host=0.0.0.0", 'server.allowed_hosts=["a"]', "auth.mode=api_keys")
    assert run(*(argument for key in overrides for argument in ("--set", key))).exit_code == 0


def test_readiness_is_another_question(listener):
    listener.answers = {"/livez": (200, b"{}"), "/readyz": (200, b"{}")}
    assert run("--url", listener.url, "--ready").output == f"{listener.url}: ready\n"
    reasons = {"ready": False, "reasons": ["storage: gone\n\x1b[31m", "upstream a: " + "x" * 1000]}
    listener.answers["/readyz"] = (503, json.dumps(reasons).encode())
    result = run("--url", listener.url, "--ready")
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {listener.url}/readyz: status 503, storage: gone  [31m; upstream a: xxx")
    assert len(result.stderr.splitlines()) == 1
    assert len(result.stderr) < 400


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"reasons": 1}', b""])
def test_of_what_is_no_gateway_the_status_is_told(listener, body):
    listener.answers = {"/livez": (418, body)}
    result = run("--url", listener.url)
    assert (result.exit_code, result.stderr) == (1, f"error: {listener.url}/livez: status 418\n")


def test_nobody_there_is_not_well():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        result = run("--url", url)
    assert (result.exit_code, result.stderr) == (1, f"error: {url}/livez: Connection refused\n")


def test_who_takes_a_connection_and_says_nothing_is_not_well():
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        result = run("--url", url, "--timeout", "0.05")
    assert (result.exit_code, result.stderr) == (1, f"error: {url}/livez: no answer within 0.05 seconds\n")


def test_who_does_not_speak_http_is_not_well():
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet():
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"220 mail.example.com ESMTP\r\n")

        thread = threading.Thread(target=greet)
        thread.start()
        result = run("--url", f"http://127.0.0.1:{server.getsockname()[1]}")
        thread.join()
    assert result.exit_code == 1
    assert "what answers there does not speak HTTP (BadStatusLine)" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--url", "127.0.0.1:9000"], "write http://HOST:PORT"),
        (["--set", "server.port=0"], "port 0 lets the system choose"),
        (["--set", "server.prot=0"], "unknown key"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(arguments, told):
    result = run(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("0.0.0.0", "http://127.0.0.1:1"),
        ("::", "http://[::1]:1"),
        ("::1", "http://[::1]:1"),
        ("10.0.0.1", "http://10.0.0.1:1"),
        ("localhost", "http://localhost:1"),
    ],
)
def test_a_wildcard_is_reached_by_loopback(host, url):
    assert local_url(host, 1) == url
