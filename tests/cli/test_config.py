"""`gateway config`: exit codes, what goes to which stream, and that secrets stay hidden."""

import json
import tomllib

import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.config import load_config
from gateway.config.render import render_schema, render_toml


@pytest.fixture
def gateway(tmp_path, monkeypatch):
    """Run `gateway config …` in an empty folder without any variable of ours."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments, **env):
        return CliRunner().invoke(cli, ["config", *map(str, arguments)], env=env)

    return run


@pytest.fixture(autouse=True)
def _without_own_variables(monkeypatch):
    import os

    for name in [name for name in os.environ if name.startswith(("GATEWAY_", "AGENTIC_"))]:
        monkeypatch.delenv(name)


@pytest.fixture
def surprising(tmp_path):
    file = tmp_path / "surprising.toml"
    file.write_text("responses.max_stream_event_bytes = '2MiB'\n", encoding="utf-8")
    return file


@pytest.fixture
def broken(tmp_path):
    file = tmp_path / "broken.toml"
    file.write_text("[server]\nprot = 1\nport = 0.5\n", encoding="utf-8")
    return file


@pytest.mark.parametrize("strict", [(), ("--strict",)])
def test_the_defaults_are_fine(gateway, strict):
    result = gateway("check", *strict)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout == "defaults and environment: ok\n"


@pytest.mark.parametrize("place", [(), ("--config",)])
def test_warnings_count_only_when_strict(gateway, surprising, place):
    relaxed, strict = gateway("check", *place, surprising), gateway("check", "--strict", *place, surprising)
    assert (relaxed.exit_code, strict.exit_code) == (0, 1)
    assert relaxed.stderr == strict.stderr
    assert relaxed.stderr.startswith(f"warning: {surprising}:1: responses.max_stream_event_bytes: ")
    assert relaxed.stdout == f"{surprising}: ok, 1 warning\n"


def test_every_problem_is_printed(gateway, broken):
    result = gateway("check", broken, "--set", "storage.readers=0", GATEWAY_STORAGE__READRS="1")
    assert (result.exit_code, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert lines[0] == f"error: {broken}:2: server.prot: unknown key (did you mean port?)"
    assert f"error: {broken}:3: server.port = 0.5: expected a whole number, got a number" in lines
    assert "error: --set: storage.readers = 0: expected a whole number >= 1" in lines
    assert any(line.startswith("error: env GATEWAY_STORAGE__READRS: unknown variable") for line in lines)
    assert lines[-1] == "4 problems, 0 warnings"


def test_the_file_is_named_once(gateway, broken):
    result = gateway("check", broken, "--config", broken)
    assert result.exit_code == 2
    assert "name the file once" in result.stderr


def test_the_file_of_the_environment_is_used(gateway, broken):
    assert gateway("check", GATEWAY_CONFIG=str(broken)).exit_code == 2


def test_no_file_is_read_that_nobody_named(gateway, tmp_path):
    (tmp_path / "gateway.toml").write_text("nonsense", encoding="utf-8")
    assert gateway("check").exit_code == 0


def test_show_prints_toml_that_loads_again(gateway, tmp_path, surprising):
    result = gateway("show", "--config", surprising, "--set", "upstream.aliases.a=b")
    assert result.exit_code == 0
    assert "warning" in result.stderr
    again = tmp_path / "again.toml"
    again.write_text(result.stdout, encoding="utf-8")
    assert load_config(again).config == load_config(surprising, {}, ["upstream.aliases.a=b"]).config


def test_show_prints_json(gateway):
    result = gateway("show", "--format", "json", GATEWAY_SERVER__PORT="9001")
    values = json.loads(result.stdout)
    assert values == tomllib.loads(gateway("show", GATEWAY_SERVER__PORT="9001").stdout)
    assert values["server"]["port"] == 9001


def test_show_takes_the_file_as_check_does(gateway, surprising):
    by_argument, by_option = gateway("show", surprising), gateway("show", "--config", surprising)
    assert by_argument.stdout == by_option.stdout
    assert 'max_stream_event_bytes = "2MiB"' in by_argument.stdout
    assert gateway("show", surprising, "--config", surprising).exit_code == 2


@pytest.mark.parametrize("form", ["toml", "json"])
def test_show_writes_values_as_people_do_in_every_form(gateway, form):
    loads = {"toml": tomllib.loads, "json": json.loads}[form]
    shown = loads(gateway("show", "--format", form, "--set", "server.drain_seconds=90").stdout)
    assert shown["server"]["drain_seconds"] == "90s"
    assert shown["responses"]["max_retained_bytes"] == "8MiB"


def test_show_tells_origins_in_json_and_in_a_table(gateway, surprising):
    arguments = ("show", "--origin", "--config", surprising, "--set", "storage.readers=3")
    found = json.loads(gateway(*arguments, "--format", "json", GATEWAY_SERVER__PORT="9001").stdout)
    assert found["responses.max_stream_event_bytes"] == {"value": "2MiB", "origin": f"{surprising}:1"}
    assert found["server.port"] == {"value": 9001, "origin": "env GATEWAY_SERVER__PORT"}
    assert found["storage.readers"] == {"value": 3, "origin": "--set"}
    assert found["server.host"] == {"value": "127.0.0.1", "origin": "default"}
    rows = [line.split() for line in gateway(*arguments, GATEWAY_SERVER__PORT="9001").stdout.splitlines()]
    assert ["responses.max_stream_event_bytes", '"2MiB"', f"{surprising}:1"] in rows
    assert ["server.port", "9001", "env", "GATEWAY_SERVER__PORT"] in rows
    assert len(rows) == len(found) + 1


def test_toml_has_no_place_for_origins(gateway):
    result = gateway("show", "--origin", "--format", "toml")
    assert result.exit_code == 2
    assert "--format json" in result.stderr


@pytest.mark.parametrize("arguments", [(), ("--format", "json"), ("--origin",), ("--origin", "--format", "json")])
def test_show_hides_secrets(gateway, tmp_path, arguments):
    key = tmp_path / "key"
    key.write_text("hunter2\n", encoding="utf-8")
    result = gateway(
        "show",
        *arguments,
        GATEWAY_UPSTREAMS__A__API_KEY="hunter2",
        GATEWAY_UPSTREAMS__B__API_KEY_FILE=str(key),
        GATEWAY_STORAGE__URL="postgresql://u:hunter2@h/d",
    )
    assert result.exit_code == 0
    assert "hunter2" not in result.output
    assert "postgresql://u:***@h/d" in result.stdout
    assert str(key) in result.stdout


def test_show_refuses_a_broken_configuration(gateway, broken):
    result = gateway("show", "--config", broken)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.count("error: ") == 2


def test_init_writes_the_template_and_overwrites_only_by_force(gateway, tmp_path):
    assert gateway("init").exit_code == 0
    file = tmp_path / "gateway.toml"
    assert file.read_text(encoding="utf-8") == render_toml()
    file.write_text("# mine", encoding="utf-8")
    refused = gateway("init", file)
    assert (refused.exit_code, file.read_text(encoding="utf-8")) == (1, "# mine")
    assert "--force" in refused.stderr
    assert gateway("init", file, "--force").exit_code == 0
    assert file.read_text(encoding="utf-8") == render_toml()


def test_init_says_why_it_cannot_write(gateway, tmp_path):
    result = gateway("init", tmp_path / "none" / "gateway.toml")
    assert result.exit_code == 1
    assert "No such file" in result.stderr


def test_schema_prints_the_schema(gateway):
    assert gateway("schema").stdout == render_schema()


@pytest.mark.parametrize("command", ["check", "show"])
def test_what_several_workers_multiply_is_said(gateway, command):
    shared = ("--set", "storage.url=postgresql://h/d")
    one = gateway(command, *shared)
    assert (one.exit_code, one.stderr) == (0, "")
    several = gateway(command, *shared, "--set", "server.workers=3")
    assert several.exit_code == 0
    assert several.stderr.startswith("note: 3 workers count each for itself, and together allow 3 times server.max_con")
    assert "upstream.max_concurrent" in several.stderr
    assert "note" not in several.stdout
