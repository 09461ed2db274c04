import os
import subprocess
import sys

import pytest
from click.testing import CliRunner

import gateway.server
import gateway.telemetry.logs
from gateway.cli.main import cli


@pytest.fixture(autouse=True)
def clean_environment(monkeypatch):
    for name in list(os.environ):
        if name.startswith(("GATEWAY_", "AGENTIC_", "OTEL_")):
            monkeypatch.delenv(name)


@pytest.fixture
def served(monkeypatch):
    """Calls of `serve`, which returns at once instead of serving."""
    calls = []

    def serve(config, *, load, announce, report, wait_upstream, origins):
        assert (load().config, load().origins) == (config, origins)
        calls.append((config, wait_upstream))
        announce("Responses Gateway on http://127.0.0.1:9000")
        return 0

    monkeypatch.setattr(gateway.server, "serve", serve)
    monkeypatch.setattr(gateway.telemetry.logs, "configure_logging", lambda level, form, stream, **_: None)
    return calls


def run(*arguments):
    return CliRunner().invoke(cli, ["serve", *arguments])


def test_flags_are_overrides(served):
    result = run(
        *("--host", "127.0.0.2", "--port", "9100", "--upstream", "http://10.0.0.1:8000/v1"),
        *("--database", "sqlite:///other.db", "--wait-upstream", "30"),
    )
    assert result.exit_code == 0, result.output
    ((config, wait_upstream),) = served
    assert (config.server.host, config.server.port) == ("127.0.0.2", 9100)
    assert config.upstream_map()["default"].url == "http://10.0.0.1:8000"
    assert config.storage.url.reveal() == "sqlite:///other.db"
    assert wait_upstream == 30


def test_flags_beat_the_environment_and_the_file(served, tmp_path, monkeypatch):
    file = tmp_path / "gateway.toml"
    file.write_text("[server]\nport = 9001\nhost = '127.0.0.3'\n")
    monkeypatch.setenv("GATEWAY_SERVER__PORT", "9002")
    assert run("--config", str(file), "--port", "9003").exit_code == 0
    ((config, wait_upstream),) = served
    assert (config.server.host, config.server.port, wait_upstream) == ("127.0.0.3", 9003, None)


def test_the_start_line_goes_to_stdout_for_people(served):
    result = run("--set", "telemetry.log_format=console")
    assert result.stdout == "Responses Gateway on http://127.0.0.1:9000\n"


def test_the_start_line_is_a_record_for_machines(served, caplog):
    with caplog.at_level("INFO"):
        result = run("--set", "telemetry.log_format=json")
    assert result.stdout == ""
    assert caplog.messages == ["Responses Gateway on http://127.0.0.1:9000"]


def test_several_workers_need_a_database_that_they_can_share(served):
    result = run("--workers", "2", "--database", "sqlite:///here.db")
    assert result.exit_code == 2
    assert "storage.url to postgresql://" in result.stderr
    assert not served


def test_several_workers_get_a_parent(monkeypatch, served):
    calls = []

    def supervise(config, *, file, overrides, load, announce, report, wait_upstream, origins):
        assert load().config == config
        calls.append((config.server.workers, file, overrides, wait_upstream))
        return 0

    monkeypatch.setattr(gateway.server, "supervise", supervise)
    assert run("--workers", "2", "--database", "postgresql://h/d", "--wait-upstream", "3").exit_code == 0
    assert calls == [(2, None, ("server.workers=2", "storage.url=postgresql://h/d"), 3)]
    assert not served


def test_problems_of_the_configuration_end_with_2(served):
    result = run("--port", "70000")
    assert result.exit_code == 2
    assert "server.port" in result.stderr
    assert not served


def test_the_exit_code_is_the_servers(monkeypatch, served):
    monkeypatch.setattr(gateway.server, "serve", lambda *_, **__: 1)
    assert run().exit_code == 1


def test_help_does_not_import_the_server():
    script = "import sys; from gateway.cli.main import main\ntry: main(['serve', '--help'])\nexcept SystemExit: pass\n"
    script += "sys.exit('litestar' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False, stdout=subprocess.DEVNULL).returncode == 0


def test_an_address_that_others_reach_is_refused_without_keys(served):
    result = run("--host", "0.0.0.0")
    assert (result.exit_code, served) == (2, [])
    assert "nobody is asked for a key" in result.stderr
    assert run("--host", "0.0.0.0", "--set", "auth.allow_unauthenticated=true").exit_code == 0
    assert run("--host", "0.0.0.0", "--set", "auth.mode=api_keys").exit_code == 0
