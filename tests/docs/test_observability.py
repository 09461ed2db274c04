"""Dashboard, alerts and collectors speak of what is there."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from docs.pages import ROOT
from docs.promql import PROCESS, TARGET_LABELS, find_grouping, find_metric, find_selectors
from docs.validators import validate

CONFIG = ROOT / "config"
DASHBOARD = json.loads((CONFIG / "grafana/dashboards/gateway.json").read_text())
PANELS: list[dict[str, Any]] = DASHBOARD["panels"]
QUERIES = [(panel["title"], target["expr"]) for panel in PANELS for target in panel.get("targets", ())]
RULES = [rule for group in yaml.safe_load((CONFIG / "alerts.yml").read_text())["groups"] for rule in group["rules"]]
ALERTS = [(rule["alert"], rule["expr"]) for rule in RULES]
EXPRESSIONS = [*QUERIES, *ALERTS]
# Of Prometheus itself, of the machine and of Kubernetes.
FOREIGN = re.compile(r"up|node_filesystem_\w+_bytes|kubelet_volume_stats_\w+_bytes")
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())


def name_of(value: object) -> str | None:
    return value if isinstance(value, str) and len(value) < 40 else ""


@pytest.mark.parametrize(("title", "expression"), EXPRESSIONS, ids=name_of)
def test_every_metric_and_label_exists(title: str, expression: str) -> None:
    selectors = find_selectors(expression)
    assert selectors
    for name, labels in selectors:
        if name in PROCESS or FOREIGN.fullmatch(name):
            continue
        metric = find_metric(name)
        assert metric is not None, f"{name} is no metric of the gateway"
        own = {*metric.labels, *TARGET_LABELS, *(["le"] if name.endswith("_bucket") else [])}
        assert labels | find_grouping(expression) <= own


@pytest.mark.parametrize("wrong", ["gateway_nothing_total", "gateway_retained_bytes", "gateway_retained_bytes_total"])
def test_a_wrong_name_would_be_noticed(wrong: str) -> None:
    assert [find_metric(name) for name, _ in find_selectors(f"sum(rate({wrong}[5m])) / vector(1)")] == [None]


@pytest.mark.parametrize("metric", ["limit_breaches", "storage_failures", "time_to_first_token", "calls_waiting"])
def test_what_operators_ask_first_is_watched(metric: str) -> None:
    assert any(metric in expression for _, expression in QUERIES)
    assert any(metric in expression for _, expression in ALERTS)


def test_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in PANELS:
        at = panel["gridPos"]
        own = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not own & cells
        assert max(x for x, _ in own) < 24
        cells |= own
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)


def test_alerts_say_how_urgent_they_are_and_what_happened() -> None:
    assert len({rule["alert"] for rule in RULES}) == len(RULES)
    assert {rule["labels"]["severity"] for rule in RULES} == {"page", "ticket"}
    assert all(rule["annotations"]["summary"] for rule in RULES)


def test_every_alert_has_a_row_on_the_page() -> None:
    page = (ROOT / "docs/deploy/observability.md").read_text()
    rows = re.findall(r"^\| `(Gateway\w+)` \| (\w+) \|", page, re.MULTILINE)
    assert rows == [(rule["alert"], rule["labels"]["severity"]) for rule in RULES]


def test_the_tests_of_alerts_count_all_of_them() -> None:
    (everything,) = re.findall(r"exp_samples: \[\{value: (\d+)\}\]", (ROOT / "tests/docs/alerts.yml").read_text())
    assert int(everything) == len(RULES)


def test_addresses_are_services_of_the_compose_file() -> None:
    texts = [path.read_text() for path in CONFIG.rglob("*") if path.suffix in {".yml", ".yaml"}]
    hosts = {host for text in texts for host in re.findall(r"([\w-]+):\d{4,5}\b", text)} - {"0"}
    assert {"gateway", "jaeger", "prometheus"} <= hosts
    assert hosts <= set(COMPOSE["services"])


def test_data_sources_are_those_that_panels_ask() -> None:
    sources = yaml.safe_load((CONFIG / "grafana/provisioning/datasources/datasources.yaml").read_text())["datasources"]
    asked = {panel["datasource"]["uid"] for panel in PANELS if "datasource" in panel}
    assert asked <= {source["uid"] for source in sources}


@pytest.mark.full
@pytest.mark.parametrize(
    "arguments",
    [("check", "config", "config/prometheus.yml"), ("check", "rules", "config/alerts.yml")],
    ids=["config", "rules"],
)
def test_promtool_accepts_the_files(arguments: tuple[str, ...]) -> None:
    validate("promtool", *arguments, cwd=ROOT)


@pytest.mark.full
def test_alerts_fire_when_they_should_and_only_then() -> None:
    validate("promtool", "test", "rules", "tests/docs/alerts.yml", cwd=ROOT)


@pytest.mark.full
def test_yaml_is_unambiguous(tmp_path: Path) -> None:
    rules = tmp_path / "yamllint.yaml"
    rules.write_text(
        "extends: relaxed\nrules: {line-length: {max: 120}, key-duplicates: {forbid-duplicated-merge-keys: true}, "
        "octal-values: enable, truthy: enable, anchors: {forbid-unused-anchors: true}, commas: disable}\n"
    )
    files = [*ROOT.glob("*.yml"), *CONFIG.rglob("*.y*ml"), *(ROOT / "docs/deploy").rglob("*.y*ml")]
    assert len(files) > 5
    validate("yamllint", "--strict", "--config-file", rules, *files)
