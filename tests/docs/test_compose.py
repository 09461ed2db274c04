"""The compose file: valid, closed up, and in agreement with the gateway and with .env.example."""

import re
import shlex
from pathlib import Path

import pytest
from docs.pages import ROOT
from docs.test_readme import parse_gateway
from docs.validators import validate
from harness.compose import find_variables, read_compose

from gateway.config import load_config
from gateway.config.units import parse_duration

FILE = ROOT / "docker-compose.yml"
EXAMPLE = (ROOT / ".env.example").read_text()
PAGE = (ROOT / "docs/deploy/compose.md").read_text()
COMPOSE = read_compose()
SERVICES = COMPOSE["services"]
OWN = {name: service for name, service in SERVICES.items() if service["image"].startswith("responses-gateway")}
SETTINGS = dict(re.findall(r"^#(\w+)=(.*)$", EXAMPLE, re.MULTILINE))


def test_the_example_has_every_variable_with_its_default() -> None:
    asked = find_variables(FILE.read_text())
    assert set(SETTINGS) == set(asked)
    # Those that a profile needs are set in the example, and have no default that would serve.
    needed = {"UPSTREAM_URL", "VLLM_MODEL", "STORAGE_URL", "POSTGRES_PASSWORD", "OTEL_TRACES_EXPORTER"}
    assert {name: SETTINGS[name] for name in set(asked) - needed} == {
        name: default for name, default in asked.items() if name not in needed
    }


def test_the_example_changes_nothing_as_it_stands() -> None:
    assert [line for line in EXAMPLE.splitlines() if line and not line.startswith("#")] == []


@pytest.mark.parametrize("name", SERVICES)
def test_nothing_is_published_beyond_loopback(name: str) -> None:
    assert [port for port in SERVICES[name].get("ports", ()) if not port.startswith("127.0.0.1:")] == []
    assert "network_mode" not in SERVICES[name]
    assert not SERVICES[name].get("privileged")


def test_the_admin_port_is_not_published() -> None:
    assert [port.rpartition(":")[2] for port in SERVICES["gateway"]["ports"]] == ["9000"]


@pytest.mark.parametrize("name", OWN)
def test_the_gateways_own_containers_are_closed_up(name: str) -> None:
    service = OWN[name]
    assert service["user"] == "10001:10001"
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", OWN)
def test_commands_of_the_gateway_exist(name: str) -> None:
    commands = [OWN[name].get("command", ["serve"])]
    check = OWN[name].get("healthcheck", {}).get("test", ["CMD", "python3"])[1:]
    commands += [check[1:]] if check[0] == "gateway" else []
    for command in commands:
        if "entrypoint" not in OWN[name]:
            parse_gateway(shlex.join(["gateway", *command]))


@pytest.mark.parametrize("settings", [{}, SETTINGS], ids=["laptop", "everything"])
def test_the_gateways_variables_configure_it(settings: dict[str, str]) -> None:
    given = {**settings, "STORAGE_URL": settings.get("STORAGE_URL", "").replace("${POSTGRES_PASSWORD}", "secret")}
    environment = read_compose(given)["services"]["gateway"]["environment"]
    loaded = load_config(ROOT / "config/examples/container.toml", environment)
    assert loaded.warnings == ()
    assert f"//{next(iter(SERVICES['gateway']['depends_on']))}:8000" in loaded.config.upstream.url or settings
    stop = parse_duration(SERVICES["gateway"]["stop_grace_period"])
    assert stop >= loaded.config.server.drain_seconds + 10


def test_urls_of_the_example_name_services() -> None:
    hosts = re.findall(r"(?://|@)([a-z-]+)(?::\d+$|/)", EXAMPLE, re.MULTILINE)
    assert hosts == ["vllm", "postgres"]
    assert set(hosts) <= set(SERVICES)


def test_what_waits_for_whom_exists_and_can_be_waited_for() -> None:
    for service in SERVICES.values():
        for name, dependency in service.get("depends_on", {}).items():
            awaited = SERVICES[name]
            if dependency["condition"] == "service_healthy":
                assert "healthcheck" in awaited
            # A service of another profile may be missing.
            optional = set(awaited.get("profiles", ())) > set(service.get("profiles", ()))
            assert dependency.get("required", True) is not optional


def test_files_that_are_mounted_exist() -> None:
    mounts = [mount for service in SERVICES.values() for mount in service.get("volumes", ())]
    assert [mount for mount in mounts if mount.startswith("./") and not (ROOT / mount.split(":")[0]).exists()] == []
    assert {mount.split(":")[0] for mount in mounts if not mount.startswith(".")} == set(COMPOSE["volumes"])


def test_images_have_versions() -> None:
    foreign = {service["image"] for service in SERVICES.values() if "build" not in service} - {
        service["image"] for service in SERVICES.values() if "build" in service
    }
    assert [image for image in foreign if image.partition(":")[2] in {"", "latest"}] == []


def test_every_profile_and_service_is_explained() -> None:
    profiles = {profile for service in SERVICES.values() for profile in service.get("profiles", ())}
    assert profiles == {"gpu", "postgres", "observability", "load"}
    assert {name for name in {*profiles, *SERVICES} if f"`{name}`" not in PAGE} == set()


@pytest.mark.full
def test_it_keeps_to_the_schema_of_compose_files() -> None:
    validate("check-jsonschema", "--builtin-schema", "vendor.compose-spec", FILE)


@pytest.mark.full
def test_a_misspelt_key_would_be_noticed(tmp_path: Path) -> None:
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(FILE.read_text().replace("start_interval", "strat_interval"))
    with pytest.raises(AssertionError, match="strat_interval"):
        validate("check-jsonschema", "--builtin-schema", "vendor.compose-spec", broken)
