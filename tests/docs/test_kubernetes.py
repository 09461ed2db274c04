"""The manifests: valid, closed up, and in agreement with the gateway and with each other."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from docs.pages import ROOT, find_commands
from docs.promql import find_metric, find_selectors
from docs.test_readme import parse_gateway
from docs.validators import validate

from gateway.config import GatewayConfig, load_config

FOLDER = ROOT / "docs/deploy/kubernetes"
KUSTOMIZATION = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
FILES = [FOLDER / name for name in KUSTOMIZATION["resources"]]
MANIFESTS: list[dict[str, Any]] = [manifest for file in FILES for manifest in yaml.safe_load_all(file.read_text())]
ADAPTER = yaml.safe_load((FOLDER / "prometheus-adapter.yaml").read_text())


def find(kind: str, name: str = "responses-gateway") -> dict[str, Any]:
    (found,) = (one for one in MANIFESTS if one["kind"] == kind and one["metadata"]["name"] == name)
    return found


SCRAPE = yaml.safe_load((FOLDER / "prometheus-scrape.yaml").read_text())
DEPLOYMENT = find("Deployment")["spec"]
JOB = find("Job", "responses-gateway-migration")["spec"]
PODS = {"gateway": DEPLOYMENT["template"], "migration": JOB["template"]}
LABELS = PODS["gateway"]["metadata"]["labels"]
POD = DEPLOYMENT["template"]["spec"]
(CONTAINER,) = POD["containers"]


@pytest.fixture
def config(tmp_path: Path) -> GatewayConfig:
    """The configuration of the pods, its secrets mounted elsewhere."""
    secret = tmp_path / "database-url"
    secret.write_text("postgresql://gateway:secret@postgres/gateway")
    secret.chmod(0o600)
    file = tmp_path / "gateway.toml"
    file.write_text((FOLDER / "gateway.toml").read_text().replace("/run/secrets/gateway", str(tmp_path)))
    loaded = load_config(file, {})
    assert loaded.warnings == ()
    return loaded.config


def test_every_file_is_listed() -> None:
    others = {"kustomization.yaml", "prometheus-adapter.yaml", "prometheus-scrape.yaml"}
    assert {path.name for path in FOLDER.glob("*.yaml")} - others == {path.name for path in FILES}
    assert [name for made in KUSTOMIZATION["configMapGenerator"] for name in made["files"]] == ["gateway.toml"]


@pytest.mark.parametrize("name", PODS)
def test_pods_are_closed_up(name: str) -> None:
    spec = PODS[name]["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 10001
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["automountServiceAccountToken"] is False
    for container in spec["containers"]:
        assert container["securityContext"] == {
            "readOnlyRootFilesystem": True,
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]


def test_stopping_is_given_the_time_it_takes(config: GatewayConfig) -> None:
    pause = CONTAINER["lifecycle"]["preStop"]["sleep"]["seconds"]
    takes = pause + config.server.drain_seconds + config.server.close_grace_seconds
    assert POD["terminationGracePeriodSeconds"] >= takes + 10


def test_ports_are_those_of_the_configuration(config: GatewayConfig) -> None:
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    assert ports == {"api": config.server.port, "admin": int(config.admin.bind.rpartition(":")[2])}
    targets = [port["targetPort"] for one in MANIFESTS if one["kind"] == "Service" for port in one["spec"]["ports"]]
    allowed = [port["port"] for rule in find("NetworkPolicy")["spec"]["ingress"] for port in rule["ports"]]
    assert set(targets) == {"api"}
    assert set(allowed) == set(ports)


def test_the_scraper_finds_the_gateways_and_labels_what_the_adapter_needs() -> None:
    (job,) = SCRAPE["scrape_configs"]
    kept = {rule["source_labels"][0]: rule["regex"] for rule in job["relabel_configs"] if rule.get("action") == "keep"}
    labels = {name.replace(".", "_").replace("/", "_").replace("-", "_"): value for name, value in LABELS.items()}
    for source, wanted in kept.items():
        label = source.removeprefix("__meta_kubernetes_pod_label_")
        assert labels.get(label) == wanted or wanted in {port["name"] for port in CONTAINER["ports"]}
    made = {rule["target_label"] for rule in job["relabel_configs"] if "target_label" in rule}
    assert made >= set(ADAPTER["rules"]["custom"][0]["resources"]["overrides"])
    assert job["kubernetes_sd_configs"][0]["namespaces"]["names"] == [KUSTOMIZATION["namespace"]]
    assert job["job_name"] == "gateway"


def test_probes_ask_what_they_should() -> None:
    asked = {name: probe["httpGet"]["path"] for name, probe in CONTAINER.items() if name.endswith("Probe")}
    assert asked == {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}


def test_the_readiness_probe_waits_longer_than_the_database_is_given(config: GatewayConfig) -> None:
    assert CONTAINER["readinessProbe"]["timeoutSeconds"] > config.storage.probe_timeout_seconds


def test_mounts_have_volumes_and_the_configuration_is_where_the_image_looks() -> None:
    for pod in PODS.values():
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        for container in pod["spec"]["containers"]:
            mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
            assert set(mounts.values()) == set(volumes)
            assert (
                volumes[mounts["/etc/gateway"]]["configMap"]["name"] == KUSTOMIZATION["configMapGenerator"][0]["name"]
            )
            assert "/tmp" in mounts
    assert "GATEWAY_CONFIG=/etc/gateway/gateway.toml" in (ROOT / "Dockerfile").read_text()


def test_whatever_selects_pods_selects_the_gateways() -> None:
    labels = LABELS.items()
    selectors = [DEPLOYMENT["selector"]["matchLabels"], find("PodDisruptionBudget")["spec"]["selector"]["matchLabels"]]
    selectors += [one["spec"]["selector"] for one in MANIFESTS if one["kind"] == "Service"]
    for selector in selectors:
        assert selector.items() <= labels
        assert not selector.items() <= PODS["migration"]["metadata"]["labels"].items()
    assert find("NetworkPolicy")["spec"]["podSelector"]["matchLabels"].items() <= labels


def test_the_autoscaler_asks_for_a_metric_that_is_made() -> None:
    scaler = find("HorizontalPodAutoscaler")["spec"]
    assert scaler["scaleTargetRef"]["name"] == find("Deployment")["metadata"]["name"]
    (asked,) = (metric["pods"]["metric"]["name"] for metric in scaler["metrics"] if metric["type"] == "Pods")
    (rule,) = ADAPTER["rules"]["custom"]
    assert rule["name"]["as"] == asked
    query = rule["metricsQuery"].replace("<<.GroupBy>>", "pod").replace("<<.LabelMatchers>>", "")
    found = [name for text in (query, rule["seriesQuery"]) for name, _ in find_selectors(text)]
    assert len(found) == 3
    assert all(find_metric(name) is not None for name in found)


def test_commands_in_pods_exist() -> None:
    parse_gateway(shlex.join(["gateway", *JOB["template"]["spec"]["containers"][0]["args"]]))
    inside = [command.line.partition(" -- ")[2] for command in find_commands("kubectl") if " -- " in command.line]
    assert inside
    for line in inside:
        parse_gateway(line)


@pytest.mark.full
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_manifests_keep_to_the_schema(file: Path) -> None:
    validate("kubernetes-validate", "--strict", file)


@pytest.mark.full
def test_promtool_accepts_the_scraper(tmp_path: Path) -> None:
    # Debian builds it without Kubernetes; the rest is checked.
    (job,) = SCRAPE["scrape_configs"]
    others = {name: value for name, value in job.items() if name != "kubernetes_sd_configs"}
    file = tmp_path / "prometheus.yaml"
    file.write_text(yaml.safe_dump({"scrape_configs": [{**others, "static_configs": [{"targets": ["pod:9901"]}]}]}))
    validate("promtool", "check", "config", "--syntax-only", file)


@pytest.mark.full
def test_a_misspelt_field_would_be_noticed(tmp_path: Path) -> None:
    broken = tmp_path / "deployment.yaml"
    broken.write_text((FOLDER / "deployment.yaml").read_text().replace("readinessProbe", "readinessProb"))
    with pytest.raises(AssertionError, match="readinessProb"):
        validate("kubernetes-validate", "--strict", broken)
