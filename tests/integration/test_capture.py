"""Captures of a running gateway: JSON, a stream, a WebSocket; chosen by a reload and by a header."""

import json
import signal
import time
from pathlib import Path
from typing import Any

from harness.client import create
from harness.engine import says
from harness.processes import Gateway
from harness.upstream import Upstream
from harness.websocket import WebSocket


def await_captures(folder: Path, count: int) -> list[dict[str, Any]]:
    deadline = time.monotonic() + 20
    while len(files := sorted(folder.glob("*.json"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert len(files) == count
    return [json.loads(file.read_text()) for file in files]


def test_what_is_chosen_is_captured_on_every_way(upstream: Upstream, tmp_path: Path) -> None:
    folder, file = tmp_path / "captures", tmp_path / "gateway.toml"
    body = {"model": upstream.script("captured", says("Answered, and seen.")), "input": "seen", "store": False}
    telemetry = f"[telemetry]\ncapture_dir = '{folder}'\ncapture_header = 'x-capture'\n"
    file.write_text(telemetry)
    with Gateway(tmp_path, upstream.url, env={"GATEWAY_CONFIG": str(file)}) as gateway:
        create(gateway.port, body)
        create(gateway.port, body, {"X-Capture": "1", "Authorization": "Bearer s3cret"})
        (asked,) = await_captures(folder, 1)
        assert (asked["principal"], asked["status"], json.loads(asked["request"]["text"])) == ("local", 200, body)
        assert "Answered, and seen." in asked["response"]["text"]
        file.write_text(f"{telemetry}capture_principals = ['local']\n")
        gateway.signal(signal.SIGHUP)
        gateway.await_log("reload: 1 applied")
        answer = create(gateway.port, {**body, "stream": True})
        _, streamed = await_captures(folder, 2)
        assert json.loads(streamed["request"]["text"])["stream"] is True
        assert streamed["response"]["text"].encode() == answer.body
        with WebSocket(gateway.port) as socket:
            socket.send({"type": "response.create", **body})
            socket.events_until_terminal()
        *_, talked = await_captures(folder, 3)
        assert talked["status"] == 101
        assert json.loads(talked["request"]["text"])["input"] == "seen"
        events = [json.loads(line)["type"] for line in talked["response"]["text"].splitlines()]
        assert (events[0], events[-1]) == ("response.created", "response.completed")
        assert "seen" not in gateway.log
