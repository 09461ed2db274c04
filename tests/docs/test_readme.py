"""What the pages tell people to type works."""

import argparse
import ast
import json
import re
import shlex
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from docs.pages import ROOT, Command, Fence, find_commands, find_fences
from harness.processes import Gateway, Simulator, free_port

from gateway.cli.main import cli
from gateway.config import load_config

README = ROOT / "README.md"
KNOWN_PROGRAMS = {
    "make",
    "gateway",
    "curl",
    ".",
    ".ci/run",
    "python3",
    "pip",
    "systemctl",
    "systemd-run",
    "mv",
    "rm",
    "pg_dump",
    "pg_restore",
    "install",
    "openssl",
    "docker",
    "cp",
    "systemd-analyze",
    "kubectl",
    "locust",
}
MCP_PAGE = ROOT / "docs/howto/mcp.md"
ADDRESSES = ("http://127.0.0.1:9000", "http://127.0.0.1:9901")


def parse_gateway(line: str) -> click.Context:
    """Parse a command line of `gateway` without running it."""
    command: click.Command = cli
    context, arguments = None, shlex.split(line)[1:]
    while isinstance(command, click.Group):
        context = command.make_context(command.name, arguments, parent=context)
        rest = [*context._protected_args, *context.args]
        if command.invoke_without_command and not rest:
            return context
        _, found, arguments = command.resolve_command(context, rest)
        assert found is not None
        command = found
    return command.make_context(command.name, arguments, parent=context)


def parse_curl(line: str) -> urllib.request.Request:
    """Read the few options of curl that the pages use."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    parser.add_argument("url")
    parser.add_argument("-N", action="store_true")
    parser.add_argument("-H", action="append", default=[])
    parser.add_argument("-d")
    asked = parser.parse_args(shlex.split(line)[1:])
    body = None if asked.d is None else asked.d.encode()
    return urllib.request.Request(asked.url, body, dict(header.split(": ", 1) for header in asked.H))


class Running:
    """A gateway in front of the simulator, as after `make demo`."""

    def __init__(self, gateway: Gateway, admin_port: int) -> None:
        self.addresses = (gateway.url, f"http://127.0.0.1:{admin_port}")
        self.response_id = json.loads(self.ask('{"model": "sim", "input": "Hello!"}'))["id"]
        self.conversation_id = json.loads(self.ask("{}", "conversations"))["id"]

    def ask(self, body: str, what: str = "responses") -> bytes:
        request = urllib.request.Request(f"{self.addresses[0]}/v1/{what}", body.encode())
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read()

    def fill_in(self, text: str) -> str:
        """Put the addresses, a stored response and a conversation in the place of the documented ones."""
        for documented, present in zip(ADDRESSES, self.addresses, strict=True):
            text = text.replace(documented, present)
        return text.replace("RESPONSE_ID", self.response_id).replace("CONVERSATION_ID", self.conversation_id)


def write_calc(folder: Path) -> Path:
    """Write the MCP server that its page tells to try."""
    file = folder / "calc.py"
    file.write_text(next(fence.text for fence in find_fences("python", pages=[MCP_PAGE])))
    return file


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("pages")
    admin_port = free_port()
    settings = {
        "admin.enabled": "true",
        "admin.bind": f"127.0.0.1:{admin_port}",
        "mcp.servers.calc.command": sys.executable,
        "mcp.servers.calc.args": json.dumps([str(write_calc(folder))]),
        "mcp.servers.calc.require_approval": "never",
    }
    with Simulator(folder) as simulator, Gateway(folder, simulator.url, settings) as gateway:
        yield Running(gateway, admin_port)


@pytest.mark.parametrize("command", find_commands(), ids=str)
def test_only_known_programs_are_used(command: Command) -> None:
    assert shlex.split(command.line)[0].removeprefix("/opt/responses-gateway/bin/") in KNOWN_PROGRAMS


@pytest.mark.parametrize("command", find_commands("gateway"), ids=str)
def test_gateway_commands_parse(command: Command) -> None:
    parse_gateway(command.line)


@pytest.mark.parametrize("line", ["gateway serve --no-such-option", "gateway nonsense", "gateway db nonsense"])
def test_a_wrong_command_would_be_noticed(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse_gateway(line)


@pytest.mark.parametrize("command", find_commands("make"), ids=str)
def test_make_targets_exist(command: Command) -> None:
    target = shlex.split(command.line)[1]
    assert re.search(rf"^{target}:.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("command", find_commands("curl"), ids=str)
def test_curl_lines_are_answered(command: Command, running: Running) -> None:
    line = running.fill_in(command.line)
    assert line != command.line
    with urllib.request.urlopen(parse_curl(line), timeout=20) as answer:
        assert answer.status == 200
        assert answer.read()


def test_the_mcp_server_of_the_page_adds(running: Running) -> None:
    (command,) = find_commands("curl", pages=[MCP_PAGE])
    with urllib.request.urlopen(parse_curl(running.fill_in(command.line)), timeout=20) as answer:
        output = json.loads(answer.read())["output"]
    assert [item["type"] for item in output] == ["mcp_list_tools", "mcp_call", "message"]
    assert output[1]["output"] == "42"


@pytest.mark.parametrize("fence", find_fences("toml", pages=[README, ROOT / "docs/howto/run-as-a-service.md"]), ids=str)
def test_configurations_are_valid(fence: Fence, tmp_path: Path) -> None:
    file = tmp_path / "gateway.toml"
    file.write_text(fence.text)
    assert load_config(file, {}).warnings == ()


@pytest.mark.parametrize("fence", find_fences("python"), ids=str)
def test_python_is_python(fence: Fence) -> None:
    ast.parse(fence.text)


@pytest.mark.filterwarnings("ignore:connect.. must be used:DeprecationWarning")
@pytest.mark.parametrize("fence", [fence for fence in find_fences("python") if "from openai" in fence.text], ids=str)
def test_snippets_run_with_the_library(fence: Fence, running: Running, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(running.fill_in(fence.text), str(fence), "exec"), {})
    assert "I am a simulated model" in capsys.readouterr().out


def test_the_readme_begins_with_the_two_commands() -> None:
    assert [command.line for command in find_commands(pages=[README])][:2] == ["make demo", "make test"]
