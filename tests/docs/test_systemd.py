"""The unit for systemd agrees with the gateway, and lets it do no more than it must."""

import re
import sys
import tomllib
from pathlib import Path

import pytest
from docs.pages import PAGES, ROOT
from docs.test_readme import parse_gateway
from docs.validators import validate

from gateway.config import load_config

UNIT = (ROOT / "docs/deploy/systemd/responses-gateway.service").read_text()

EXPOSURE = 1.5


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The unit as it is where its program exists."""
    unit = tmp_path / "responses-gateway.service"
    unit.write_text(UNIT.replace("/opt/responses-gateway/bin/gateway", str(Path(sys.executable).with_name("gateway"))))
    return unit


def read(key: str) -> list[str]:
    return re.findall(rf"^{key}=(.*)$", UNIT, re.MULTILINE)


def test_the_unit_starts_a_command_that_exists():
    (start,) = read("ExecStart")
    program, _, arguments = start.partition(" ")
    assert program == "/opt/responses-gateway/bin/gateway"
    assert parse_gateway(f"gateway {arguments}").params["config"].name == "gateway.toml"


def test_the_unit_waits_for_the_drain_and_reloads_by_hangup():
    drain_seconds = load_config(None, {}).config.server.drain_seconds
    assert int(read("TimeoutStopSec")[0]) >= drain_seconds + 10
    assert read("ExecReload") == ["/bin/kill -HUP $MAINPID"]


def test_a_faulty_configuration_is_not_tried_again():
    assert read("Restart") == ["on-failure"]
    assert read("RestartPreventExitStatus") == ["2"]


def test_the_extras_that_pages_name_exist():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    texts = [page.read_text() for page in PAGES]
    named = {extra for text in texts for group in re.findall(r"'\.\[([\w,]+)\]'", text) for extra in group.split(",")}
    assert named == {"postgres", "otlp", "mcp"}
    assert named <= set(project["optional-dependencies"])


@pytest.mark.full
def test_systemd_understands_the_unit(installed: Path) -> None:
    assert validate("systemd-analyze", "verify", "--man=no", installed) == ""


@pytest.mark.full
def test_the_unit_is_closed_up(installed: Path) -> None:
    said = validate("systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE * 10:.0f}", installed)
    assert "Overall exposure level" in said


@pytest.mark.full
def test_an_open_unit_would_be_noticed(installed: Path) -> None:
    installed.write_text(
        re.sub(r"^(Protect|Private|Restrict|Capability|SystemCall|DynamicUser).*\n", "", UNIT, flags=re.MULTILINE)
    )
    with pytest.raises(AssertionError, match="Overall exposure level"):
        validate("systemd-analyze", "security", "--offline=yes", f"--threshold={EXPOSURE * 10:.0f}", installed)
