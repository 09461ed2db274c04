"""No secret comes out again: in no answer, log, trace, metric, status, crash, command or file, whatever goes wrong.

One process is led through success and failure with keys and passwords planted wherever it takes some. Then everything
it wrote and everything that can be asked of it is searched for them.
"""

import itertools
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import psycopg
import pytest
from click.testing import CliRunner
from harness.client import Answer, client, open_create
from harness.engine import Answer as Answered
from harness.engine import call, in_turn, says
from harness.logs import restored_logging
from harness.processes import Process, clean_environment, free_port
from harness.upstream import Reply, Request, Upstream
from harness.websocket import HandshakeRefused, WebSocket
from integration.turns import ask, begin_and_fail, refuse

from gateway.cli.main import cli
from gateway.protocol.credentials import digest_key, write_key

PASSWORD, UPSTREAM_KEY, NEXT_UPSTREAM_KEY = "planted-password-1", "sk-planted-upstream-2", "sk-planted-upstream-3"
STRANGE_KEY = "sk-planted-strange-4"
OPERATORS_TOKEN, CALLERS_TOKEN, CALLERS_PATH = "planted-token-5", "planted-token-6", "planted-in-a-path-7"
RGW_STRANGER = write_key("stranger0000", b"\x05" * 32)
# A gateway with a fault: the route fails unexpectedly, with the caller's key at hand.
FAULTY = """
import gateway.engine.service as service
from gateway.cli.main import main

async def fail(self, principal, response_id, page):
    raise RuntimeError("a planted fault")

service.Engine.input_items = fail
main()
"""
CRASHING = """
import gateway.server
from gateway.cli.main import main

def crash(config, **_):
    url, key = config.storage.url, config.upstream.api_key
    raise RuntimeError(f"a planted crash at {url} with {key} and {config!r}")

gateway.server.serve = crash
main()
"""
ADMIN_PATHS = ("/", "/status", "/status.json", "/config", "/metrics", "/livez", "/readyz?verbose")


class Echo(BaseHTTPRequestHandler):
    """An MCP server that repeats wherever it can what it was given to keep, and refuses every second call."""

    protocol_version = "HTTP/1.1"
    told: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        told = f"{self.headers['authorization']} of {self.path}"
        self.told.append(told)
        result: dict[str, Any] = {}
        match message["method"]:
            case "initialize":
                info = {"name": told, "version": "1"}
                result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info, "instructions": told}
            case "tools/list":
                schema = {"type": "object", "properties": {"a": {"description": told, "default": told}}}
                result = {"tools": [{"name": "say", "description": told, "inputSchema": schema}]}
            case "tools/call":
                result = {"content": [{"type": "text", "text": told}], "structuredContent": {"a": told}}
        body = {"jsonrpc": "2.0", "id": message.get("id"), "result": result}
        status = 200 if "id" in message else 202
        if message["method"] == "tools/call" and message["params"]["arguments"]:
            body = {**body, "error": {"code": -1, "message": told}}
            del body["result"]
        data = json.dumps(body).encode() if status == 200 else b""
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_DELETE(self) -> None:
        self.send_error(405)

    do_GET = do_DELETE  # noqa: N815 - what the base looks for

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


class Site:
    """A gateway with planted secrets, and all that was seen of it.

    Attributes:
        secrets: what must not be seen anywhere.
        seen: everything that was, by where.
    """

    def __init__(self, folder: Path, upstream: Upstream, database: str, mcp_url: str) -> None:
        self.folder = folder
        self.mcp_url = mcp_url
        self.upstream = upstream
        self.database = database.replace("postgres@", f"postgres:{PASSWORD}@")
        self.config = folder / "gateway.toml"
        self.seen: dict[str, str] = {}
        self.admin_port, port = free_port(), free_port()
        self._configure(UPSTREAM_KEY, port)
        self.key = self.command("keys", "create", "--principal", "ada", check=False).strip()
        self.secrets = [PASSWORD, UPSTREAM_KEY, NEXT_UPSTREAM_KEY, STRANGE_KEY, RGW_STRANGER, self.key]
        self.secrets += [OPERATORS_TOKEN, CALLERS_TOKEN, CALLERS_PATH]
        self.secrets += [key.split("_")[2] for key in (self.key, RGW_STRANGER)]
        self.process = Process(["serve", "--config", str(self.config)], port, folder / "gateway.log", self._env)
        self.process._arguments[:1] = [sys.executable, "-c", FAULTY]

    @property
    def _env(self) -> dict[str, str]:
        return {"GATEWAY_STORAGE__URL": self.database, "OTEL_TRACES_EXPORTER": "console"}

    def _configure(self, upstream_key: str, port: int) -> None:
        self.config.write_text(
            f"""
            [server]
            port = {port}
            [admin]
            bind = "127.0.0.1:{self.admin_port}"
            [auth]
            mode = "api_keys"
            keys_in = "database"
            [upstream]
            url = "{self.upstream.url}"
            api_key = "{upstream_key}"
            [storage]
            auto_migrate = "always"
            [mcp]
            allow_private_addresses = true
            [mcp.servers.docs]
            url = "{self.mcp_url}"
            authorization = "{OPERATORS_TOKEN}"
            [telemetry]
            log_level = "debug"
            log_format = "json"
            """
        )

    def reload(self) -> None:
        """Have another key for the inference server taken over."""
        self._configure(NEXT_UPSTREAM_KEY, self.process.port)
        self.process.signal(signal.SIGHUP)
        self.process.await_log("reload: 1 applied")

    def command(self, *arguments: str, check: bool = True, env: dict[str, str] | None = None) -> str:
        """Run a command of the same configuration; returns stdout, and keeps stderr and, unless it must not, stdout."""
        with restored_logging():
            result = CliRunner().invoke(
                cli, [*arguments, "--config", str(self.config)], env=clean_environment(env or self._env)
            )
        assert result.exit_code in {0, 1, 2}, result.output
        self.seen[f"stderr of {' '.join(arguments)}"] = result.stderr + str(result.exception)
        if check:
            self.seen[f"stdout of {' '.join(arguments)}"] = result.stdout
        return result.stdout

    def call(self, method: str, path: str, key: str | None, body: Any = None, **headers: str) -> Answer:
        sent = headers if key is None else {"Authorization": f"Bearer {key}", **headers}
        with client(self.process.port) as caller:
            answer = caller.call(method, path, None if body is None else json.dumps(body).encode(), sent)
        self._note(f"{method} {path} {len(self.seen)}", answer)
        return answer

    def look(self, path: str) -> Answer:
        """Ask the admin listener."""
        with client(self.admin_port) as operator:
            answer = operator.get(path)
        self._note(f"admin {path}", answer)
        return answer

    def _note(self, name: str, answer: Answer) -> None:
        self.seen[name] = f"{answer.headers} {answer.body.decode()}"


@pytest.fixture(scope="module")
def site(
    upstream: Upstream, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Site]:
    server = request.getfixturevalue("postgres_server")
    echo = ThreadingHTTPServer(("127.0.0.1", 0), Echo)
    threading.Thread(target=echo.serve_forever, daemon=True).start()
    mcp_url = f"http://127.0.0.1:{echo.server_port}/mcp"
    site = Site(tmp_path_factory.mktemp("secrets"), upstream, server.create_database(), mcp_url)
    site.process.start("/livez")
    yield site
    if site.process.running:
        site.process.kill()
    echo.shutdown()
    echo.server_close()


async def leak(request: Request, reply: Reply) -> None:
    """Refuse as inference servers do that repeat what they were sent."""
    message = f"Incorrect API key provided: {request.headers['authorization']}"
    await reply.json({"error": {"message": message, "type": "auth", "code": message, "param": message}}, 400)


def succeed(site: Site) -> None:
    model = site.upstream.script("secrets", says("Hello."))
    for body in ({}, {"stream": True}):
        assert site.call("POST", "/v1/responses", site.key, {"model": model, "input": "hi", **body}).status == 200
    with WebSocket(site.process.port, headers={"Authorization": f"Bearer {site.key}"}) as socket:
        site.seen["socket"] = str(ask(socket, model))
    assert site.upstream.calls(model)[0].headers["authorization"] == f"Bearer {UPSTREAM_KEY}"


def be_refused(site: Site) -> None:
    for key in (STRANGE_KEY, RGW_STRANGER, f"{site.key}x", site.key.upper()):
        assert site.call("GET", "/v1/models", key).status == 401
        assert site.call("GET", f"/v1/models?api_key={key}", key).status == 401
        with pytest.raises(HandshakeRefused):
            WebSocket(site.process.port, headers={"Authorization": f"Bearer {key}"})
    assert site.call("GET", "/v1/models", None, **{"X-Api-Key": site.key}).status == 401
    bad = {"model": "secrets", "input": 7}
    assert site.call("POST", "/v1/responses", site.key, bad, **{"x-request-id": "mine"}).status == 400
    assert site.call("GET", "/nowhere", site.key).status == 404


def fail(site: Site) -> None:
    for name, script, status in (("leak", leak, 400), ("refuse", refuse(500), 502)):
        model = site.upstream.script(f"secrets {name}", script)
        for stream in (False, True):
            body = {"model": model, "input": "hi", "stream": stream}
            assert site.call("POST", "/v1/responses", site.key, body).status == status
    model = site.upstream.script("secrets broken", begin_and_fail)
    assert site.call("POST", "/v1/responses", site.key, {"model": model, "input": "hi", "stream": True}).status == 200
    assert site.call("GET", "/v1/responses/resp_1/input_items", site.key).status == 500
    # One that leaves in the middle.
    with open_create(site.process.port, {"model": model, "input": "hi"}, {"Authorization": f"Bearer {site.key}"}):
        pass


def use_tools(site: Site) -> None:
    """Call tools of a server of the configuration, and of one that the request names with credentials of its own."""
    docs = {"type": "mcp", "server_label": "docs", "require_approval": "never"}
    own = {**docs, "server_url": f"{site.mcp_url}/{CALLERS_PATH}?key={CALLERS_PATH}", "authorization": CALLERS_TOKEN}
    for number, tool in enumerate((docs, own, {**docs, "headers": {"Authorization": f"Bearer {CALLERS_TOKEN}"}})):
        calls = [call("mcp__docs__say", arguments, f"call_{arguments}") for arguments in ("{}", '{"a":1}')]
        model = f"secrets of tools {number}"
        body = {"model": model, "input": "hi", "tools": [tool]}
        for way in ({}, {"stream": True}, {"background": True}):
            site.upstream.script(model, in_turn(Answered(calls), says("Done.")))
            made = site.call("POST", "/v1/responses", site.key, {**body, **way})
            assert made.status == 200
            if "background" in way:
                while site.call("GET", f"/v1/responses/{made.json['id']}", site.key).json["status"] != "completed":
                    time.sleep(0.05)
    assert site.call("POST", "/v1/responses", site.key, {**body, "model": "away", "tools": [own] * 2}).status == 400


def read_database(url: str) -> str:
    with psycopg.connect(url) as connection:
        tables = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        assert ("api_keys",) in tables
        rows = itertools.chain.from_iterable(
            connection.execute(f"SELECT * FROM {name}").fetchall() for (name,) in tables
        )
        return "\n".join(bytes(cell).decode() if isinstance(cell, bytes) else str(cell) for row in rows for cell in row)


@pytest.mark.postgres
@pytest.mark.timeout(120)
def test_no_secret_comes_out_again(site: Site) -> None:
    succeed(site)
    be_refused(site)
    fail(site)
    use_tools(site)
    site.reload()
    succeed_after_reload = site.call("GET", "/v1/models", site.key)
    assert succeed_after_reload.status == 200
    for path in ADMIN_PATHS:
        assert site.look(path).status == 200
    for path in ("/openapi.json", "/docs", "/version", "/readyz?verbose"):
        assert site.call("GET", path, None).status == 200
    for arguments in (("show",), ("show", "--origin"), ("show", "--format", "json", "--origin"), ("check",)):
        site.command("config", *arguments)
    site.command("keys", "list")
    site.command("keys", "revoke", site.key)
    site.command("db", "check")
    away = {**clean_environment(), "GATEWAY_STORAGE__URL": f"postgresql://a:{PASSWORD}@127.0.0.1:1/a"}
    site.command("db", "check", env=away)
    site.command("keys", "list", env=away)
    odd = {
        **clean_environment(),
        "GATEWAY_STORAGE__URL": f"mysql://a:{PASSWORD}@h/a",
        "GATEWAY_UPSTREAM__API_KEY": "ключ",
    }
    site.command("config", "check", env=odd)
    site.seen["database"] = read_database(site.database)
    assert site.process.stop() == 0
    site.seen["log, traces"] = site.process.log
    crash = subprocess.run(
        [sys.executable, "-c", CRASHING, "serve", "--config", str(site.config)],
        env=clean_environment(site._env),
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    site.seen["crash"] = crash.stdout + crash.stderr

    # What was looked for was really there to be found.
    assert "a planted crash" in site.seen["crash"]
    assert "Traceback" in site.seen["log, traces"]
    assert "a planted fault" in site.seen["log, traces"]
    assert '"trace_id"' in site.seen["log, traces"]
    assert digest_key(site.key) in site.seen["database"]
    assert "Incorrect API key provided" in str(site.seen)
    assert {told.split()[1] for told in Echo.told} == {OPERATORS_TOKEN, CALLERS_TOKEN}
    assert "mcp_call" in str(site.seen)
    found = {(place, secret) for place, text in site.seen.items() for secret in site.secrets if secret in text}
    assert found == set()
