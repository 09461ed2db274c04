"""A gateway with a certificate of its own: HTTPS, WSS, health, and another certificate without a restart."""

import http.client
import json
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import trustme
from click.testing import CliRunner
from harness.client import RESPONSES, Answer
from harness.engine import says
from harness.processes import Gateway
from harness.upstream import Upstream
from integration.databases import DatabaseGateway
from websockets.sync.client import connect

from gateway.cli.main import cli

BODY = {"model": "over-tls", "input": "hi"}


class Site:
    """The files of a gateway, and its callers."""

    def __init__(self, folder: Path) -> None:
        self.cert, self.key, self.ca = folder / "gateway.pem", folder / "gateway.key", folder / "ca.pem"
        self._authority = trustme.CA()
        self._authority.cert_pem.write_to_path(str(self.ca))
        self.trust = ssl.create_default_context(cafile=str(self.ca))
        self.renew()

    @property
    def settings(self) -> dict[str, str]:
        return {"server.tls_cert_file": str(self.cert), "server.tls_key_file": str(self.key)}

    def renew(self) -> None:
        """Write another certificate, and its key."""
        issued = self._authority.issue_cert("127.0.0.1", "localhost")
        self.cert.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(self.key))

    def shown(self, port: int) -> bytes:
        """Return the certificate that a new connection is shown."""
        with (
            socket.create_connection(("127.0.0.1", port), 5) as plain,
            self.trust.wrap_socket(plain, server_hostname="localhost") as client,
        ):
            return client.getpeercert(binary_form=True) or b""

    def call(self, port: int) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", port, timeout=20, context=self.trust)

    def create(self, port: int, body: dict[str, object]) -> Answer:
        with closing(self.call(port)) as connection:
            return create_on(connection, body)


def create_on(connection: http.client.HTTPSConnection, body: dict[str, object]) -> Answer:
    connection.request("POST", RESPONSES, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    return Answer(answer.status, dict(answer.headers), answer.read())


@pytest.fixture(scope="module")
def site(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Site:
    upstream.script("over-tls", says("Hello over TLS."))
    return Site(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def served(site: Site, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path_factory.mktemp("gateway"), upstream.url, site.settings)
    gateway.tls = site.trust
    with gateway as running:
        yield running


def test_responses_over_https_and_wss(served: Gateway, site: Site) -> None:
    served.await_log("Responses Gateway", f"on https://127.0.0.1:{served.port}")
    first = site.create(served.port, BODY)
    assert first.status == 200
    stream = site.create(served.port, {**BODY, "stream": True, "previous_response_id": first.json["id"]})
    assert stream.deltas() == "Hello over TLS."
    with connect(f"wss://localhost:{served.port}{RESPONSES}", ssl=site.trust) as socket:
        socket.send(json.dumps({"type": "response.create", **BODY, "stream_id": "a"}))
        events = [json.loads(socket.recv(10))]
        while events[-1]["type"] != "response.completed":
            events.append(json.loads(socket.recv(10)))
    assert "".join(event.get("delta", "") for event in events) == "Hello over TLS."


def test_health_finds_it(served: Gateway, site: Site) -> None:
    flags = [flag for key, value in site.settings.items() for flag in ("--set", f"{key}={value}")]
    url = f"https://localhost:{served.port}"
    for arguments, code, told in (
        ([*flags, "--set", f"server.port={served.port}"], 0, "alive"),
        (["--url", url], 1, "its certificate is not trusted"),
        (["--url", url, "--ca-file", str(site.ca)], 0, "alive"),
        (["--url", url, "--insecure"], 0, "alive"),
        (["--url", url, "--ca-file", "nowhere.pem"], 2, "nowhere.pem"),
    ):
        result = CliRunner().invoke(cli, ["health", *arguments])
        assert (result.exit_code, told in result.output) == (code, True), result.output


def test_another_certificate_without_a_restart(served: Gateway, site: Site) -> None:
    old = site.shown(served.port)
    kept = site.call(served.port)
    assert create_on(kept, BODY).status == 200
    working = site.key.read_bytes()
    site.key.write_bytes(b"rubbish")
    served.signal(signal.SIGHUP)
    assert "no certificate and key in PEM form" in served.await_log("the configuration cannot be used")
    assert site.shown(served.port) == old
    site.key.write_bytes(working)
    site.renew()
    served.signal(signal.SIGHUP)
    served.await_log("reload: nothing has changed")
    assert site.shown(served.port) not in {old, b""}
    assert create_on(kept, BODY).status == 200
    kept.close()


@pytest.mark.postgres
def test_workers_serve_it_and_change_it_too(
    site: Site, upstream: Upstream, postgres_database: str, tmp_path: Path
) -> None:
    gateway = DatabaseGateway(tmp_path, upstream.url, postgres_database, {**site.settings, "server.workers": "2"})
    gateway.tls = site.trust
    with gateway:
        gateway.await_log("Responses Gateway", "https://", "2 workers", timeout=30)
        assert site.create(gateway.port, {**BODY, "stream": True}).deltas() == "Hello over TLS."
        old = site.shown(gateway.port)
        site.renew()
        gateway.signal(signal.SIGHUP)
        for worker in (1, 2):
            gateway.await_log("reload: nothing has changed", f'"worker":{worker}')
        assert {site.shown(gateway.port) for _ in range(10)}.isdisjoint({old})
