"""The entry point: what is listed, what is imported for it, and how the program names itself."""

import importlib
import re
import subprocess
import sys

import pytest
from click.testing import CliRunner

from gateway import __version__
from gateway.cli.main import COMMANDS, cli

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
    assert set(imported.split()) == {"gateway.cli", "gateway.cli.main", "gateway.cli.version"}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_found_and_shows_its_own_help(name):
    result = CliRunner().invoke(cli, [name, "--help"])
    assert result.exit_code == 0
    assert f"Usage: cli {name} " in result.output


def test_an_unknown_command_is_refused_by_name():
    result = CliRunner().invoke(cli, ["nonsense"])
    assert result.exit_code == 2
    assert "No such command 'nonsense'" in result.output


def test_the_version_has_one_form():
    by_option, by_command = (CliRunner().invoke(cli, [arguments]).output for arguments in ("--version", "version"))
    assert by_option == by_command
    assert by_option.startswith(f"Responses Gateway {__version__} (Python 3.")
