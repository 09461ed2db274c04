"""Agents and libraries as people install them, with all their tools, against a gateway before the simulator.

`make test-full` installs them; their versions are in `tests/clients`.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness.processes import Gateway, Simulator

pytestmark = [pytest.mark.full, pytest.mark.timeout(180)]

CHECKS = Path(__file__).parents[1] / "clients"
INSTALLED = Path(sys.prefix) / "clients"
MODULES = INSTALLED / "node_modules"
# Names that Codex knows models by decide which tools it offers.
NAMES = ("gpt-5.5", "gpt-6-astra")
CONFIG = """
model_provider = "gateway"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[analytics]
enabled = false

[model_providers.gateway]
name = "gateway"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "GATEWAY_KEY"
supports_websockets = {sockets}
request_max_retries = 0
stream_max_retries = 0
stream_idle_timeout_ms = 20000
"""
PATCH = "*** Begin Patch\n*** Add File: made.txt\n+by a patch\n*** End Patch\n"
SCRIPT = 'text(await tools.exec_command({cmd: "echo by a script > made.txt"}))'


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("clients")
    aliases = json.dumps(dict.fromkeys(NAMES, "sim")).replace(": ", " = ")
    with Simulator(folder) as simulator, Gateway(folder, simulator.url, {"upstream.aliases": aliases}) as running:
        yield running


def run(
    command: list[str], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )


def expect_all_well(done: subprocess.CompletedProcess[str], checks: int) -> None:
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr[-2000:]
    assert [line for line in lines if not line.endswith(": ok")] == []
    assert len(lines) == checks


def test_the_agents_sdk_uses_every_tool_over_every_transport(gateway: Gateway, tmp_path: Path) -> None:
    python = str(INSTALLED / "python/bin/python")
    done = run([python, str(CHECKS / "agents_tools.py"), f"{gateway.url}/v1"], tmp_path)
    expect_all_well(done, 30)


def test_libraries_for_javascript_use_every_tool(gateway: Gateway, tmp_path: Path) -> None:
    # Modules are looked for beside the script.
    script = Path(shutil.copy(CHECKS / "node_tools.mjs", tmp_path))
    (tmp_path / "node_modules").symlink_to(MODULES)
    expect_all_well(run(["node", str(script), f"{gateway.url}/v1"], tmp_path), 18)


@dataclass
class Codex:
    """The Codex CLI with a home and a working folder of its own."""

    gateway: Gateway
    folder: Path
    sockets: bool

    def run(self, model: str, prompt: str, *arguments: str) -> str:
        """Run one task and return what it said last."""
        home, work = self.folder / "home", self.folder / "work"
        for path in (home, work):
            path.mkdir(exist_ok=True)
        sockets = "true" if self.sockets else "false"
        (home / "config.toml").write_text(CONFIG.format(url=self.gateway.url, sockets=sockets))
        launcher = ["node", str(MODULES / "@openai/codex/bin/codex.js")]
        command = [*launcher, "exec", "--skip-git-repo-check", "--model", model, *arguments, prompt]
        environment = {**os.environ, "HOME": str(home), "CODEX_HOME": str(home), "GATEWAY_KEY": "unused"}
        done = run(command, work, environment)
        assert done.returncode == 0, done.stdout + done.stderr[-2000:]
        return done.stdout.strip()

    def made(self) -> str:
        return (self.folder / "work/made.txt").read_text()


@pytest.fixture(params=[False, True], ids=["http", "websocket"])
def codex(request: pytest.FixtureRequest, gateway: Gateway) -> Iterator[Codex]:
    # It refuses a home below the folder for temporary files.
    folder = Path.home() / f".codex-test-{os.getpid()}-{request.param_index}"
    folder.mkdir()
    try:
        yield Codex(gateway, folder, request.param)
    finally:
        shutil.rmtree(folder)


def test_codex_works_on_a_task_with_functions_searches_and_patches(codex: Codex) -> None:
    task = [
        '@tool tool_search {"query": "mail"}',
        "@then",
        '@tool exec_command {"cmd": "echo marker-$((6 * 7))"}',
        "@then",
        f"@tool apply_patch {json.dumps({'input': PATCH})}",
    ]
    said = codex.run("gpt-5.5", "\n".join(task))
    assert "marker-42" in said
    assert codex.made() == "by a patch\n"


def test_codex_works_with_tools_that_come_with_the_input(codex: Codex) -> None:
    said = codex.run("gpt-6-astra", f"@tool exec {json.dumps({'input': SCRIPT})}\n@say Scripted.")
    assert said == "Scripted."
    assert codex.made() == "by a script\n"


def test_codex_resumes_a_session(codex: Codex) -> None:
    said = [codex.run("gpt-5.5", "alpha"), codex.run("gpt-5.5", "beta", "resume", "--last")]
    assert [words in one for words, one in zip(("“alpha”", "“beta”"), said, strict=True)] == [True, True]
    # Its instructions for the session are messages too.
    counts = [re.findall(r"Before that you wrote (\w+)", one) for one in said]
    assert counts[0] != counts[1]
    assert all(counts)
