import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request

import pytest
from click.testing import CliRunner

from gateway.cli.simulate import command


@pytest.fixture
def running(tmp_path):
    """Start `gateway simulate` on a free port with a script; yield the process and its address."""
    script = tmp_path / "script.json"
    script.write_text('[{"match": "scripted", "json": {"from": "script"}}]')
    agents = tmp_path / "agents.toml"
    agents.write_text("'/root' = '@say I am the root.'")
    arguments = ["simulate", "--port", "0", "--itl", "0", "--script", str(script), "--agents", str(agents)]
    code = "import sys; from gateway.cli.main import main; main(sys.argv[1:])"
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
            assert found
            yield process, found[0]
        finally:
            if process.poll() is None:
                process.kill()


def post(url: str, text: str) -> dict:
    body = json.dumps({"model": "sim", "input": text}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{url}/v1/responses", body), timeout=30) as response:
        return json.load(response)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serves_until_it_is_told_to_stop(running, number):
    process, url = running
    assert post(url, "scripted") == {"from": "script"}
    assert post(url, "scripted")["model"] == "sim"
    os.kill(process.pid, number)
    _, log = process.communicate(timeout=30)
    assert process.returncode == 0
    assert len([line for line in log.splitlines() if "POST /v1/responses" in line]) == 2
    assert "Traceback" not in log


def test_taken_port():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        result = CliRunner().invoke(command, ["--port", str(port)])
    assert result.exit_code == 1
    assert f"127.0.0.1:{port}" in result.output
    assert "--port" in result.output


def test_faulty_script_is_wrong_usage(tmp_path):
    script = tmp_path / "script.json"
    script.write_text('[{"statsu": 500}]')
    result = CliRunner().invoke(command, ["--script", str(script)])
    assert result.exit_code == 2
    assert "statsu" in result.output


def test_a_faulty_file_of_agents_is_wrong_usage(tmp_path):
    agents = tmp_path / "agents.toml"
    agents.write_text("'/root' = 3")
    result = CliRunner().invoke(command, ["--agents", str(agents)])
    assert result.exit_code == 2
    # A long path is broken anywhere.
    assert "agents.toml" in re.sub(r"[│\s]", "", result.output)


def test_help():
    result = CliRunner().invoke(command, ["--help"])
    assert result.exit_code == 0
    for option in ("--host", "--port", "--script", "--agents", "--itl"):
        assert option in result.output
