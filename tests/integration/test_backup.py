"""The commands of the page on backups, as they are written there, while a gateway serves."""

import json
import os
import subprocess
import sys
from pathlib import Path

from docs.pages import ROOT, find_fences
from harness.client import client, create
from harness.engine import says
from harness.processes import Gateway, clean_environment
from harness.upstream import Upstream

PAGE = ROOT / "docs/howto/backup.md"


def look_up(gateway: Gateway, response_id: str) -> int:
    with client(gateway.port) as caller:
        return caller.get(f"/v1/responses/{response_id}").status


def run(script: str, folder: Path) -> None:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", "-e", "-c", script],
        cwd=folder,
        env={**clean_environment(), "PATH": path},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_copy_of_a_database_in_use_is_restored(upstream: Upstream, tmp_path: Path) -> None:
    take, put_back = (fence.text for fence in find_fences("sh", pages=[PAGE])[:2])
    body = {"model": upstream.script("kept", says("kept")), "input": "hi"}
    audit = tmp_path / "audit.jsonl"
    (tmp_path / "gateway.toml").write_text(
        f'telemetry.audit_file = "{audit}"\nstorage.url = "sqlite:///responses.db"\n'
    )
    gateway = Gateway(tmp_path, upstream.url, {"telemetry.audit_file": str(audit)})
    with gateway:
        before = create(gateway.port, body).json["id"]
        run(take, tmp_path)
        after = create(gateway.port, body).json["id"]
        assert look_up(gateway, after) == 200
    run(put_back, tmp_path)
    with gateway:
        assert look_up(gateway, before) == 200
        assert look_up(gateway, after) == 404
    records = [json.loads(line) for line in audit.read_text().splitlines()]
    assert [(record["action"], record["actor"] == "SIGTERM", record["outcome"]) for record in records] == [
        ("db backup", False, "done"),
        ("stop", True, "draining"),
        ("stop", True, "draining"),
    ]
