"""Proxies as the page configures them: a stream passes as it comes, a WebSocket opens, and nobody forges a caller."""

import http.client
import json
import re
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
import trustme
import yaml
from docs.pages import ROOT
from harness.client import client
from harness.processes import Gateway, Simulator, clean_environment, free_port
from prometheus_client.parser import text_string_to_metric_families
from websockets.sync.client import connect

FOLDER = ROOT / "docs/deploy/proxies"
PAGE = (ROOT / "docs/deploy/reverse-proxies.md").read_text()
HOST = "llm.example.com"
RESPONSES = "/v1/responses"
START_SECONDS, LEAVE_SECONDS, STOP_SECONDS = 15, 10, 15
CERTIFICATE = "/etc/ssl/llm.example.com"


class Proxied:
    """A caller of a gateway behind a proxy.

    Args:
        port: where the proxy listens on loopback.
        authority: who signed its certificate.
        key: of the caller.
    """

    def __init__(self, port: int, authority: trustme.CA, key: str) -> None:
        self.port = port
        self.context = ssl.create_default_context()
        authority.configure_trust(self.context)
        self.key = key

    def dial(self) -> socket.socket:
        """A TCP connection to the proxy, whatever address the documented name has."""
        return socket.create_connection(("127.0.0.1", self.port), 10)

    @contextmanager
    def post(self, body: dict[str, object], **headers: str) -> Iterator[http.client.HTTPResponse]:
        """Ask for a response, with the key unless the headers name another caller."""
        sent = headers or {"authorization": f"Bearer {self.key}"}
        connection = http.client.HTTPConnection(HOST, self.port, timeout=10)
        with self.context.wrap_socket(self.dial(), server_hostname=HOST) as connection.sock:
            connection.request("POST", RESPONSES, json.dumps(body), {"content-type": "application/json", **sent})
            with connection.getresponse() as answer:
                yield answer


def prepare_nginx(text: str, folder: Path) -> tuple[str, list[str]]:
    """It listens on loopback and writes into a folder of its own."""
    text = text.replace("listen 443", "listen 127.0.0.1:443")
    paths = "".join(
        f"{kind}_temp_path {folder}/{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = text.replace("http {", f"http {{ access_log off; {paths}", 1)
    return f"daemon off; pid {folder}/pid; error_log stderr;\n{text}", ["nginx", "-p", str(folder), "-c"]


def prepare_haproxy(text: str, folder: Path) -> tuple[str, list[str]]:
    """It listens on loopback."""
    return text.replace("bind :443", "bind 127.0.0.1:443"), ["haproxy", "-db", "-f"]


def prepare_caddy(text: str, folder: Path) -> tuple[str, list[str]]:
    """It listens on loopback, and has its certificate given."""
    tls = f"bind 127.0.0.1\n\ttls {CERTIFICATE}.crt {CERTIFICATE}.key"
    text = text.replace(f"{HOST} {{", f"{HOST}:443 {{\n\t{tls}")
    options = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n"
    return options + text, ["caddy", "run", "--adapter", "caddyfile", "--config"]


PROXIES: dict[str, tuple[str, Callable[[str, Path], tuple[str, list[str]]]]] = {
    "nginx": ("nginx.conf", prepare_nginx),
    "haproxy": ("haproxy.cfg", prepare_haproxy),
    "caddy": ("Caddyfile", prepare_caddy),
}


class Serving(NamedTuple):
    """A gateway that trusts a header of whoever connects from this machine.

    Attributes:
        port: of callers.
        admin: port of operators.
        key: of a caller.
    """

    port: int
    admin: int
    key: str

    @property
    def disconnects(self) -> float:
        """Clients that left before their answer ended."""
        with client(self.admin) as operator:
            families = text_string_to_metric_families(operator.get("/metrics").body.decode())
        (family,) = (one for one in families if one.name == "gateway_client_disconnects")
        return family.samples[0].value


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A gateway, and a key for it."""
    folder = tmp_path_factory.mktemp("gateway")
    admin = free_port()
    settings = {
        "server.allowed_hosts": f'["{HOST}"]',
        "admin.enabled": "true",
        "admin.bind": f"127.0.0.1:{admin}",
        "auth.mode": "api_keys",
        "auth.keys_in": "database",
        "auth.trusted_principal_header": "x-forwarded-user",
        "auth.trusted_proxies": '["127.0.0.1"]',
    }
    with Simulator(folder) as simulator, Gateway(folder, simulator.url, settings) as serving:
        command = [str(Path(sys.executable).with_name("gateway")), "keys", "create", "--principal", "ada"]
        command += ["--database", f"sqlite:///{serving.database}", "--set", "auth.keys_in=database"]
        done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=30, check=True)
        yield Serving(serving.port, admin, done.stdout.strip())


@pytest.fixture(scope="module", params=PROXIES)
def proxied(
    request: pytest.FixtureRequest, gateway: Serving, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxied]:
    """One proxy after the other in front of the gateway, with its documented configuration."""
    folder = tmp_path_factory.mktemp(request.param)
    name, prepare = PROXIES[request.param]
    authority = trustme.CA()
    certificate = authority.issue_cert(HOST)
    certificate.cert_chain_pems[0].write_to_path(folder / "site.crt")
    certificate.private_key_pem.write_to_path(folder / "site.key")
    certificate.private_key_and_cert_chain_pem.write_to_path(folder / "site.pem")
    text, command = prepare((FOLDER / name).read_text(), folder)
    port = free_port()
    text = text.replace(CERTIFICATE, str(folder / "site")).replace(":443", f":{port}")
    text = text.replace("127.0.0.1:9000", f"127.0.0.1:{gateway.port}")
    (folder / name).write_text(text)
    environment = {**clean_environment(), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, folder / name], env=environment, stdout=log, stderr=log)
    caller = Proxied(port, authority, gateway.key)
    try:
        await_answer(caller, process, folder / "log")
        yield caller
    finally:
        process.terminate()
        process.wait(STOP_SECONDS)


def await_answer(caller: Proxied, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until the proxy passes requests on, which it does once it has found the gateway ready."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        assert process.poll() is None, log.read_text()
        assert time.monotonic() < deadline, log.read_text()
        try:
            with caller.post({"model": "sim", "input": "hi"}) as answer:
                if answer.status == 200:
                    return
        except OSError:
            pass
        time.sleep(0.1)


@pytest.mark.full
def test_a_stream_passes_as_it_comes(proxied: Proxied) -> None:
    # It falls silent after three tokens and never ends: whoever waits for more of it waits for ever.
    with proxied.post({"model": "sim-stall", "input": "hi", "stream": True}) as answer:
        assert answer.status == 200
        deltas = 0
        while deltas < 3:
            deltas += answer.readline().startswith(b"event: response.output_text.delta")


@pytest.mark.full
def test_an_inference_ends_when_its_client_leaves(proxied: Proxied, gateway: Serving) -> None:
    before = gateway.disconnects
    with proxied.post({"model": "sim-stall", "input": "hi", "stream": True}) as answer:
        assert answer.readline()
    deadline = time.monotonic() + LEAVE_SECONDS
    while gateway.disconnects == before:
        assert time.monotonic() < deadline, "the gateway does not learn that its client has left"
        time.sleep(0.05)


@pytest.mark.full
def test_a_websocket_opens(proxied: Proxied) -> None:
    address, headers = f"wss://{HOST}:{proxied.port}{RESPONSES}", {"authorization": f"Bearer {proxied.key}"}
    with connect(address, sock=proxied.dial(), ssl=proxied.context, additional_headers=headers) as websocket:
        websocket.send(json.dumps({"type": "response.create", "stream_id": "a", "model": "sim", "input": "hi"}))
        events = [json.loads(websocket.recv(timeout=10))]
        while events[-1]["type"] != "response.completed":
            events.append(json.loads(websocket.recv(timeout=10)))
    assert {event["stream_id"] for event in events} == {"a"}


@pytest.mark.full
def test_callers_cannot_name_themselves(proxied: Proxied, gateway: Serving) -> None:
    forged = {"X-Forwarded-User": "eve"}
    with proxied.post({"model": "sim", "input": "hi"}, **forged) as answer:
        assert answer.status == 401
    # Not because nobody could.
    with client(gateway.port) as direct:
        assert direct.create({"model": "sim", "input": "hi"}, forged).status == 200


@pytest.mark.full
def test_large_bodies_pass_and_larger_ones_are_refused_by_the_gateway(proxied: Proxied) -> None:
    with proxied.post({"model": "sim", "input": "hi", "metadata": {}, "user": "u" * 9_000_000}) as answer:
        assert answer.status == 200, answer.read()
    with proxied.post({"model": "sim", "input": "hi", "user": "u" * 10_600_000}) as answer:
        assert answer.status == 413
        assert json.loads(answer.read())["error"]["code"] == "request_too_large"


@pytest.mark.parametrize("name", [*(name for name, _ in PROXIES.values()), "traefik.yaml"])
def test_no_proxy_lets_callers_name_themselves(name: str) -> None:
    text = (FOLDER / name).read_text()
    assert re.search(r"X-Forwarded-User( \"\"|: \"\"|)", text)
    assert f"proxies/{name})" in PAGE


def test_traefik_is_given_what_it_knows() -> None:
    parts = yaml.safe_load((FOLDER / "traefik.yaml").read_text())["http"]
    (router,) = parts["routers"].values()
    assert router["service"] in parts["services"]
    assert set(router["middlewares"]) == set(parts["middlewares"])
    assert parts["services"][router["service"]]["loadBalancer"]["serversTransport"] in parts["serversTransports"]
