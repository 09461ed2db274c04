"""The status of a process that has served: as a document, at a terminal, and as a page in a real browser."""

import struct
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from harness.browser import Tab, open_browser
from harness.client import client
from harness.engine import says
from harness.pages import serve_page
from harness.processes import run_command
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration.sizes import EVENT, settings
from integration.watched import WatchedGateway
from telemetry.status_samples import make_status, spoil

from gateway.telemetry.status import Status
from gateway.transport.status_page import POLICY, render_status

NARROW, WIDE = 400, 1200
SECRET = "planted-0123456789"
OVERFLOW = "document.documentElement.scrollWidth"


@pytest.fixture(scope="module")
def served(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedGateway]:
    """A gateway that has answered on every transport, has refused, and has met a limit."""
    model = upstream.script("status", says("Hello there"))
    with WatchedGateway(
        tmp_path_factory.mktemp("status"), upstream, {**settings({EVENT: 4096}), "upstream.api_key": SECRET}
    ) as running:
        with client(running.port) as caller:
            for stream in (False, True, True):
                assert caller.create({"model": model, "input": "hi", "stream": stream}).status == 200
            assert caller.create({"model": model, "input": 5}).status == 400
            long = upstream.script("status-long", says("x" * 5000))
            caller.create({"model": long, "input": "hi", "stream": True})
        with WebSocket(running.port) as socket:
            socket.create(model)
            socket.events_until_terminal()
            socket.send({"type": "response.cancel"})
            assert socket.next_event()["type"] == "error"
            yield running


def read(served: WatchedGateway, path: str) -> bytes:
    with urllib.request.urlopen(served.admin_url + path, timeout=10) as answer:
        return bytes(answer.read())


def read_json(served: WatchedGateway, path: str) -> Any:
    return msgspec.json.decode(read(served, path))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    with open_browser(tmp_path_factory.mktemp("browser")) as running:
        yield running


def test_the_document_tells_what_happened(served: WatchedGateway) -> None:
    status = msgspec.json.decode(read(served, "/status.json"), type=Status)
    assert [process.pid for process in status.processes] == [served.pid]
    ended = {(one.transport, one.status): one.count for one in status.responses}
    assert ended == {
        ("json", "completed"): 1,
        ("sse", "completed"): 2,
        ("sse", "failed"): 1,
        ("websocket", "completed"): 1,
    }
    assert (status.lanes.connections.now, status.lanes.connections.high) == (1, 1)
    assert status.clients.responses.now == 0 < status.clients.responses.high
    limits = {limit.key: limit for limit in status.limits}
    event = limits[f"responses.{EVENT}"]
    assert (event.limit, event.breaches, event.seen.count) == (4096, 1, 4)
    assert event.seen.max is not None
    assert event.seen.max <= 4096
    assert status.latency.first_token.count == 4
    assert status.storage.commit_seconds.count == 4
    errors = [(error.route, error.status, error.code) for error in status.last_errors]
    assert errors == [
        ("websocket", 400, "unsupported_event"),
        ("sse", 502, "response_resource_limit_exceeded"),
        ("/v1/responses", 400, "invalid_type"),
    ]
    assert all(error.request_id.startswith("req_") for error in status.last_errors)


def test_the_configuration_in_effect_is_shown_with_where_it_was_written(served: WatchedGateway) -> None:
    shown = read_json(served, "/config")
    assert shown["responses.max_stream_event_bytes"] == {"value": "4KiB", "origin": "--set"}
    assert shown["responses.max_json_depth"] == {"value": 100, "origin": "default"}
    assert shown["upstream.api_key"]["value"] == "***"


@pytest.mark.parametrize("path", ["/", "/status.json", "/config", "/metrics", "/readyz?verbose"])
def test_no_secret_is_shown(served: WatchedGateway, path: str) -> None:
    assert SECRET.encode() not in read(served, path)


def test_the_command_reads_the_document_of_a_process(served: WatchedGateway) -> None:
    done = run_command("status", "--url", served.admin_url, env={"COLUMNS": "150"})
    assert (done.returncode, done.stderr) == (0, "")
    assert f"process {served.pid}" in done.stdout
    assert "response_resource_limit_exceeded" in done.stdout


@pytest.mark.full
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_the_page_fits_complains_of_nothing_and_asks_nobody_else(
    served: WatchedGateway, browser: Tab, tmp_path: Path, width: int, dark: bool
) -> None:
    browser.complaints.clear()
    browser.requested.clear()
    browser.open(f"{served.admin_url}/status?refresh=0", width=width, dark=dark)
    assert browser.evaluate(OVERFLOW) <= width
    assert browser.complaints == []
    assert {url for url in browser.requested if not url.startswith("data:")} == {f"{served.admin_url}/status?refresh=0"}
    assert "responses.max_stream_event_bytes" in browser.evaluate("document.body.innerText")
    assert browser.evaluate("matchMedia('(prefers-color-scheme: dark)').matches") is dark
    picture = browser.capture(tmp_path / "status.png")
    assert picture.startswith(b"\x89PNG")
    assert struct.unpack(">I", picture[16:20]) == (width,)


@pytest.mark.full
def test_the_page_asks_again_by_itself(served: WatchedGateway, browser: Tab) -> None:
    browser.open(f"{served.admin_url}/status?refresh=1")
    before = browser.loads
    browser.wait(lambda: browser.loads >= before + 2)
    browser.open("about:blank")
    assert browser.complaints == []


@pytest.mark.full
def test_what_others_say_does_nothing_in_a_browser(browser: Tab) -> None:
    with serve_page(render_status(spoil(make_status()), refresh=0), {"content-security-policy": POLICY}) as url:
        browser.requested.clear()
        browser.open(url, width=NARROW)
        assert browser.evaluate("document.title") == "Responses Gateway: status"
        assert browser.evaluate(OVERFLOW) <= NARROW
        assert {asked for asked in browser.requested if not asked.startswith("data:")} == {url}
    assert browser.complaints == []
