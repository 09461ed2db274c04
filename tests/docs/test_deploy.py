"""The files for supervisors agree with the gateway."""

import re
import tomllib

from docs.pages import PAGES, ROOT
from docs.test_readme import parse_gateway

from gateway.config import load_config

UNIT = (ROOT / "docs/deploy/systemd/responses-gateway.service").read_text()


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
    assert named == {"postgres", "otlp"}
    assert named <= set(project["optional-dependencies"])
