"""SIGHUP: what changed in the file holds for the next request, and for no request that is running."""

import asyncio
import json
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from harness.client import Answer, client, create, open_create, read_until
from harness.engine import says
from harness.processes import Gateway, free_port, run_command
from harness.upstream import Reply, Request, Upstream

HELD = "x" * 400
TOOLS = [{"type": "function", "name": name, "parameters": {}} for name in "ab"]


class Live:
    """A gateway whose configuration file can be rewritten."""

    def __init__(self, gateway: Gateway, file: Path) -> None:
        self.gateway = gateway
        self.port = gateway.port
        self.file = file

    def reports(self) -> list[dict[str, Any]]:
        """The log records of reloads so far."""
        lines = (json.loads(line) for line in self.gateway.log.splitlines() if line.startswith("{"))
        return [line for line in lines if line["message"].startswith("reload: ")]

    def reload(self, text: str | None = None) -> dict[str, Any]:
        """Write the file, unless it is to stay as it is, reload, and return the record."""
        if text is not None:
            self.file.write_text(text)
        before = len(self.reports())
        self.gateway.signal(signal.SIGHUP)
        deadline = time.monotonic() + 20
        while len(self.reports()) == before:
            assert time.monotonic() < deadline, self.gateway.log
            time.sleep(0.02)
        return self.reports()[before]

    def ask(self, model: str = "quick", **members: object) -> Answer:
        return create(self.port, {"model": model, "input": "hi", "store": False, **members})


class Held:
    """A script that streams half an answer and goes on when it is told to."""

    def __init__(self) -> None:
        self._go_on = threading.Event()

    async def __call__(self, request: Request, reply: Reply) -> None:
        frames = says(HELD).frames()
        await reply.head()
        await reply.send(b"".join(frames[:8]))
        while not self._go_on.is_set():
            await asyncio.sleep(0.01)
        await reply.send(b"".join(frames[8:]))
        await reply.end()

    def go_on(self) -> None:
        self._go_on.set()


Start = Callable[..., Live]


@pytest.fixture
def start(upstream: Upstream, tmp_path: Path) -> Iterator[Start]:
    upstream.script("quick", says("quick"))
    running: list[Gateway] = []

    def start(text: str = "", env: Mapping[str, str] | None = None, settings: Mapping[str, str] | None = None) -> Live:
        file = tmp_path / "gateway.toml"
        file.write_text(text)
        gateway = Gateway(tmp_path, upstream.url, settings, {"GATEWAY_CONFIG": str(file), **(env or {})})
        running.append(gateway)
        gateway.start("/livez")
        return Live(gateway, file)

    yield start
    for gateway in running:
        if gateway.running:
            gateway.stop()


@contextmanager
def running_stream(live: Live, upstream: Upstream, name: str) -> Iterator[None]:
    """Hold a stream open in the middle for as long as the block runs; then it must end as if nothing had happened."""
    held = Held()
    model = upstream.script(name, held)
    with open_create(live.port, {"model": model, "input": "hi", "stream": True, "store": False}) as connection:
        raw = read_until(connection, b"output_text.delta")
        try:
            yield
        finally:
            held.go_on()
        raw += read_until(connection, b"[DONE]")
    assert b"response.completed" in raw
    assert HELD.encode() in raw


# ---------------------------------------------------------------- one live key of each section


def test_limits_of_responses(start: Start, upstream: Upstream) -> None:
    live = start()
    with running_stream(live, upstream, "held-responses"):
        report = live.reload("[responses]\nmax_retained_bytes = 100\nmax_tools = 1\n")
        assert report["level"] == "info"
        assert report["applied"] == {
            "responses.max_retained_bytes": '"8MiB" -> "100B"',
            "responses.max_tools": "1024 -> 1",
        }
        assert live.ask(tools=TOOLS).error["param"] == "tools"
        large = upstream.script("large", says("y" * 200))
        assert "max_retained_bytes" in live.ask(large).error["message"]
    assert live.reload("")["applied"]["responses.max_tools"] == "1 -> 1024"
    assert live.ask(tools=TOOLS).status == 200


def test_the_deadline_of_the_engine(start: Start, upstream: Upstream) -> None:
    live = start()
    with running_stream(live, upstream, "held-engine"):
        live.reload('[engine]\nrun_deadline_seconds = "200ms"\n')
        model = upstream.script("never-answers", Held())
        assert live.ask(model, stream=True).final["error"]["code"] == "server_error"


def test_bounds_of_the_server(start: Start, upstream: Upstream) -> None:
    live = start()
    with running_stream(live, upstream, "held-server"), client(live.port) as caller:
        assert caller.get("/livez").status == 200
        live.reload("[server]\nmax_request_body_bytes = 200\nmax_header_bytes = 300\nkeepalive_seconds = 0.05\n")
        assert live.ask(instructions="x" * 200).status == 413
        large = {"x-large": "x" * 300}
        assert create(live.port, {"model": "quick", "input": "hi"}, large).status == 431
        assert caller.call("GET", "/livez", headers=large).status == 200, "an open connection keeps its bounds"


def test_the_number_of_requests(start: Start, upstream: Upstream) -> None:
    live = start()
    with running_stream(live, upstream, "held-number"):
        live.reload("[server]\nmax_concurrent_requests = 1\n")
        assert "limit of 1 concurrent" in live.ask().error["message"]
        live.reload("[server]\nmax_concurrent_requests = 2\n")
        assert live.ask().status == 200


def test_hosts_and_origins(start: Start) -> None:
    live = start()
    headers = {"Host": "llm.example.com", "Origin": "https://chat.example.com"}
    with client(live.port) as caller:
        assert caller.call("GET", "/livez", headers=headers).status == 403
        live.reload("[server]\nallowed_hosts = ['llm.example.com']\nallowed_origins = ['https://chat.example.com']\n")
        answer = caller.call("GET", "/livez", headers=headers)
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, headers["Origin"])
        live.reload("")
        assert caller.call("GET", "/livez", headers=headers).status == 403


def test_routing_and_headers_of_an_upstream(start: Start, upstream: Upstream) -> None:
    live = start()
    body = {"model": "small", "input": "hi", "store": False}
    assert create(live.port, body).status == 404
    live.reload('[upstream]\naliases = { small = "quick" }\nforward_headers = ["x-team"]\n')
    before = len(upstream.calls("quick"))
    assert create(live.port, body, {"X-Team": "blue"}).status == 200
    (call,) = upstream.calls("quick")[before:]
    assert call.headers["x-team"] == "blue"


def test_seats_of_an_upstream(start: Start, upstream: Upstream) -> None:
    live = start("[upstream]\nmax_concurrent = 2\nmax_concurrent_wait_seconds = 0\n")
    with running_stream(live, upstream, "held-seats-1"), running_stream(live, upstream, "held-seats-2"):
        assert live.ask().status == 503
        live.reload("[upstream]\nmax_concurrent = 1\nmax_concurrent_wait_seconds = 0\n")
        assert "limit of 1 concurrent" in live.ask().error["message"]
        live.reload("[upstream]\nmax_concurrent = 3\nmax_concurrent_wait_seconds = 0\n")
        assert live.ask().status == 200


def test_a_rotated_key_is_read_although_no_key_of_the_file_changed(
    start: Start, upstream: Upstream, tmp_path: Path
) -> None:
    secret = tmp_path / "key"
    secret.write_text("s3cret-one\n")
    secret.chmod(0o600)
    live = start(f'[upstream]\napi_key_file = "{secret}"\n')
    live.ask()
    secret.write_text("s3cret-two\n")
    assert live.reload()["applied"] == {"upstream.api_key": "*** -> ***"}
    live.ask()
    old, new = upstream.calls("quick")[-2:]
    assert (old.headers["authorization"], new.headers["authorization"]) == ("Bearer s3cret-one", "Bearer s3cret-two")
    assert "s3cret" not in live.gateway.log


def test_the_level_of_the_log(start: Start) -> None:
    live = start()
    body = {"model": "quick", "input": "hi", "store": False}
    assert live.reload('[telemetry]\nlog_level = "error"\n')["applied"] == {"telemetry.log_level": '"info" -> "error"'}
    create(live.port, body, {"X-Request-Id": "not-logged"})
    assert live.reload("")["applied"] == {"telemetry.log_level": '"error" -> "info"'}
    create(live.port, body, {"X-Request-Id": "logged-again"})
    live.gateway.await_log("logged-again", '"message":"request"')
    assert "not-logged" not in live.gateway.log


def test_the_end_goes_by_the_newest_times(start: Start, upstream: Upstream) -> None:
    live = start("[server]\ndrain_seconds = 3600\n")
    live.reload("[server]\ndrain_seconds = 0.1\nclose_grace_seconds = 0.1\n")
    model = upstream.script("held-drain", Held())
    with open_create(live.port, {"model": model, "input": "hi", "stream": True}) as connection:
        read_until(connection, b"output_text.delta")
        assert live.gateway.stop() == 0
        assert b"response.failed" in read_until(connection, b"[DONE]")


def test_a_hangup_during_the_start_is_kept(upstream: Upstream, tmp_path: Path) -> None:
    gateway = Gateway(tmp_path, upstream.url)
    starting = threading.Thread(target=gateway.start, args=("/livez",))
    starting.start()
    deadline = time.monotonic() + 20
    # From here on the process holds the signal back: it is the first thing that `serve` does.
    while not (gateway.running and _holds_back_hangups(gateway.pid)):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    gateway.signal(signal.SIGHUP)
    starting.join(30)
    gateway.await_log("reload: nothing has changed")
    assert gateway.stop() == 0


def _holds_back_hangups(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(re.search(r"^SigBlk:\s*(\w+)$", status, re.MULTILINE)[1], 16) & 1 << signal.SIGHUP - 1)


# ---------------------------------------------------------------- what does not apply


def test_what_needs_a_restart_is_named_each_time(start: Start) -> None:
    live = start()
    text = "[storage]\nreaders = 2\n[responses]\nmax_tools = 5\n"
    first, second = live.reload(text), live.reload(text)
    assert (first["level"], first["applied"]) == ("warning", {"responses.max_tools": "1024 -> 5"})
    assert first["restart_needed"] == second["restart_needed"] == {"storage.readers": "4 -> 2"}
    assert "applied" not in second


def test_a_key_does_not_go_to_another_server(start: Start, upstream: Upstream, tmp_path: Path) -> None:
    text = '[upstreams.a]\nurl = "{url}"\napi_key = "{key}"\n'
    file = tmp_path / "several.toml"
    file.write_text(text.format(url=upstream.url, key="key-of-old"))
    arguments = ["serve", "--config", str(file), "--port", str(free_port()), "--set", "admin.enabled=false"]
    gateway = Gateway(tmp_path, upstream.url)
    gateway._arguments[1:] = [*arguments, "--database", f"sqlite:///{gateway.database}"]
    gateway.port = int(arguments[4])
    with gateway:
        live = Live(gateway, file)
        report = live.reload(text.format(url="http://127.0.0.1:9", key="key-of-new"))
        assert report["restart_needed"] == {
            "upstreams.a.url": f'"{upstream.url}" -> "http://127.0.0.1:9"',
            "upstreams.a.api_key": "*** -> ***",
        }
        live.ask()
        assert upstream.calls("quick")[-1].headers["authorization"] == "Bearer key-of-old"


def test_a_stronger_source_still_wins(start: Start) -> None:
    live = start(env={"GATEWAY_RESPONSES__MAX_TOOLS": "1"}, settings={"responses.max_input_items": "1"})
    report = live.reload("[responses]\nmax_tools = 5\nmax_input_items = 5\n")
    assert report["message"] == "reload: nothing has changed"
    assert live.ask(tools=TOOLS).status == 400


@pytest.mark.parametrize(
    "text",
    [
        "[responses\nmax_tools = 1\n",
        "[responses]\nmax_tool = 1\n",
        "[responses]\nmax_tools = 0\n[server]\nport = 99999\n",
        "[upstream]\napi_key = 'k'\nforward_headers = ['authorization']\n",
        None,
    ],
    ids=["no TOML", "unknown key", "out of range", "contradiction", "no file"],
)
def test_a_faulty_file_changes_nothing_and_is_told_as_the_check_tells_it(start: Start, text: str | None) -> None:
    live = start("[responses]\nmax_tools = 1\n")
    if text is None:
        live.file.unlink()
    report = live.reload(text)
    assert report["level"] == "error"
    assert report["message"] == "reload: the configuration cannot be used; nothing was changed"
    checked = run_command("config", "check", str(live.file))
    *findings, _ = checked.stderr.splitlines()
    warnings = [f"warning: {warning}" for warning in report.get("warnings", ())]
    assert [*warnings, *(f"error: {problem}" for problem in report["problems"])] == findings
    assert live.ask(tools=TOOLS).status == 400
    assert live.reload("[responses]\nmax_tools = 2\n")["applied"] == {"responses.max_tools": "1 -> 2"}


# ---------------------------------------------------------------- under load


def test_many_reloads_fail_no_request(start: Start, upstream: Upstream) -> None:
    admin = free_port()
    live = start(settings={"admin.enabled": "true", "admin.bind": f"127.0.0.1:{admin}"})
    stop, statuses, hangups = threading.Event(), [], 0

    def send(stream: bool) -> None:
        with client(live.port) as caller:
            while not stop.is_set():
                answer = caller.create({"model": "quick", "input": "hi", "stream": stream})
                statuses.append(answer.status if not stream else answer.final["status"])

    callers = [threading.Thread(target=send, args=(stream,)) for stream in (True, False)]
    for caller in callers:
        caller.start()
    try:
        while hangups < 100:
            # A rename, so that no reading sees half a file.
            fresh = live.file.with_suffix(".new")
            fresh.write_text(
                f"[responses]\nmax_tools = {hangups + 1}\n[upstream]\nmax_concurrent = {hangups % 3 + 2}\n"
            )
            fresh.replace(live.file)
            live.gateway.signal(signal.SIGHUP)
            hangups += 1
            time.sleep(0.01)
        # What is reported first may be the answer to a signal before.
        while live.reload()["message"] != "reload: nothing has changed":
            hangups += 1
            assert hangups < 200
    finally:
        stop.set()
        for caller in callers:
            caller.join(30)
    assert set(statuses) == {200, "completed"}
    with client(admin) as operator:
        metrics = operator.get("/metrics").body.decode()
    counted = {name: float(value) for name, value in re.findall(r'reloads_total\{outcome="(\w+)"\} (\S+)', metrics)}
    assert set(counted) <= {"applied", "unchanged"}
    assert 2 <= sum(counted.values()) <= hangups + 1
    stamp = re.search(r"^gateway_config_last_reload_timestamp_seconds (\S+)$", metrics, re.MULTILINE)
    assert stamp is not None
    assert abs(float(stamp[1]) - time.time()) < 60
