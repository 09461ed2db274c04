"""The image's file agrees with the gateway; `make image-test` builds and runs it."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
from docs.pages import ROOT
from docs.test_readme import parse_gateway
from docs.validators import validate

from gateway.config import load_config

DOCKERFILE = (ROOT / "Dockerfile").read_text()
# A continued line is one instruction.
INSTRUCTIONS = [
    line.split(maxsplit=1) for line in DOCKERFILE.replace("\\\n", " ").splitlines() if line and not line.startswith("#")
]
CONTAINER = ROOT / "config/examples/container.toml"


def read(instruction: str) -> list[str]:
    return [rest for name, rest in INSTRUCTIONS if name == instruction]


def test_the_command_and_the_health_check_exist() -> None:
    (entry,), (command,), (check,) = read("ENTRYPOINT"), read("CMD"), read("HEALTHCHECK")
    assert json.loads(entry) == ["tini", "--", "gateway"]
    parse_gateway(shlex.join(["gateway", *json.loads(command)]))
    parse_gateway(shlex.join(json.loads(check.partition(" CMD ")[2])))


def test_two_stages_share_one_base_that_can_be_chosen() -> None:
    assert read("ARG")[0].startswith("BASE_IMAGE=")
    assert [line.split()[0] for line in read("FROM")] == ["${BASE_IMAGE}", "${BASE_IMAGE}"]


def test_the_user_is_nobody_in_particular() -> None:
    assert read("USER") == ["10001:10001"]
    assert read("STOPSIGNAL") == ["SIGTERM"]


def test_what_is_copied_reaches_the_builder() -> None:
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {source for line in read("COPY") if "--from" not in line for source in line.split()[:-1]}
    assert {Path(source).parts[0] for source in copied - {"wheel[s]"}} == kept - {"wheels"}
    assert [source for source in copied - {"wheel[s]"} if not (ROOT / source).exists()] == []


def test_the_extras_exist() -> None:
    extras = next(line.partition("=")[2] for line in read("ARG") if line.startswith("EXTRAS="))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert f"extras={extras}\n" in (ROOT / ".ci/image").read_text()


def test_its_configuration_fits_its_folders_and_ports() -> None:
    loaded = load_config(CONTAINER, {})
    assert loaded.warnings == ()
    config = loaded.config
    (folder,), (ports,) = read("WORKDIR"), read("EXPOSE")
    assert config.storage.url.reveal() == f"sqlite:///{folder}/responses.db"
    assert ports.split() == [str(config.server.port), config.admin.bind.rpartition(":")[2]]
    assert read("VOLUME") == [folder]
    assert re.search(rf"^COPY {CONTAINER.relative_to(ROOT)} (\S+)$", DOCKERFILE, re.MULTILINE)[1] in read("ENV")[0]


@pytest.mark.full
def test_hadolint_finds_nothing() -> None:
    validate("hadolint", ROOT / "Dockerfile")


@pytest.mark.full
def test_hadolint_would_find_something(tmp_path: Path) -> None:
    broken = tmp_path / "Dockerfile"
    broken.write_text(DOCKERFILE.replace("# hadolint ignore=DL3008\n", ""))
    with pytest.raises(AssertionError, match="DL3008"):
        validate("hadolint", broken)
