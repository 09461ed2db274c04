"""The entry point: what is listed, what is imported for it, and how the program names itself."""

import importlib
import io
import re
import socket
import subprocess
import sys

import pytest
from click.testing import CliRunner

import gateway.telemetry.logs
from gateway import __version__
from gateway.cli.main import COMMANDS, cli, main

LISTING = """
import sys
from gateway.cli.main import main
try:
    main(["--help"])
finally:
    print(*(name for name in sys.modules if name.startswith("gateway.")))
"""


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_says_of_a_command_what_its_own_help_says_first(name):
    help_text = importlib.import_module(f"gateway.cli.{name}").command.help
    assert COMMANDS[name] == help_text.partition("\n\n")[0].replace("\n", " ")


def test_help_lists_every_command_and_imports_none():
    done = subprocess.run([sys.executable, "-c", LISTING], capture_output=True, text=True, timeout=30, check=True)
    *screen, imported = done.stdout.splitlines()
    assert re.findall(r"^│ ([a-z]+)  ", "\n".join(screen), re.MULTILINE)[-len(COMMANDS) :] == list(COMMANDS)
    assert set(imported.split()) == {"gateway.cli", "gateway.cli.errors", "gateway.cli.main", "gateway.cli.version"}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_found_and_shows_its_own_help(name):
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert f"Usage: cli {name} " in result.output


def test_an_unknown_command_is_refused_by_name():
    result = CliRunner().invoke(cli, ["nonsense"])
    assert result.exit_code == 2
    assert "No such command 'nonsense'" in result.output


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        (
            ["serve", "--port", "x"],
            2,
            "Invalid value for '--port': 'x' is not a valid integer; see `gateway serve --help`",
        ),
        (["config", "show", "--nonsense"], 2, "No such option '--nonsense'; see `gateway config show --help`"),
        (["nonsense"], 2, "No such command 'nonsense'; see `gateway --help`"),
        (["config", "check", "a.toml", "--config", "b.toml"], 2, "name the file once: as FILE or with --config"),
        (["config", "init", "/nonexistent/a.toml"], 1, "cannot write /nonexistent/a.toml: No such file or directory"),
        (["config", "check", "/nonexistent/a.toml"], 2, "/nonexistent/a.toml: cannot read the configuration file: No"),
        (["serve", "--set", "server.prot=1"], 2, "--set: server.prot: unknown key (did you mean port?)"),
        (["serve", "--port", "{port}"], 1, "address 127.0.0.1:{port} is in use; stop what listens there or change"),
        (["db", "check", "--database", "sqlite:////nonexistent/a.db"], 1, "The database file does not exist or cannot"),
        (["simulate", "--port", "{port}"], 1, "127.0.0.1:{port} cannot be listened on (Address already in use)"),
        (
            ["simulate", "--script", "/nonexistent"],
            2,
            "Invalid value for '--script': File '/nonexistent' ",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_every_error_is_one_line_of_the_same_form(arguments, code, line, monkeypatch, capsys):
    monkeypatch.setattr(gateway.telemetry.logs, "configure_logging", lambda level, form, stream, **_: None)
    monkeypatch.setenv("GATEWAY_STORAGE__URL", "sqlite:////nonexistent/a.db")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(SystemExit) as ended:
            main([argument.format(port=port) for argument in arguments])
    told = capsys.readouterr().err.splitlines()
    assert ended.value.code == code, told
    (error,) = [text for text in told if text.startswith("error: ")]
    assert error.startswith(f"error: {line.format(port=port)}")
    told.remove(error)
    assert all(text.startswith(("database: ", "1 problem")) for text in told), told


def test_who_thinks_better_of_it_has_stopped(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("n\n"))
    with pytest.raises(SystemExit) as ended:
        main(["db", "downgrade", "base", "--database", "sqlite:////nonexistent/a.db"])
    assert ended.value.code == 1
    assert capsys.readouterr().err.endswith("error: stopped\n")


def test_an_orderly_end_is_code_zero(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["version"])
    assert not ended.value.code
    assert capsys.readouterr().out.startswith("Responses Gateway")


def test_the_version_has_one_form():
    by_option, by_command = (CliRunner().invoke(cli, [arguments]).output for arguments in ("--version", "version"))
    assert by_option == by_command
    assert by_option.startswith(f"Responses Gateway {__version__} (Python 3.")
