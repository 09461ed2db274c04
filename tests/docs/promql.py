"""What expressions of PromQL ask for."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import promql_parser
from prometheus_client import CollectorRegistry, ProcessCollector

from gateway.telemetry import names
from gateway.telemetry.names import Metric

METRICS = {value.name: value for value in vars(names).values() if isinstance(value, Metric)}
PROCESS = {
    sample.name for family in ProcessCollector(registry=CollectorRegistry()).collect() for sample in family.samples
}
# What Prometheus adds to every sample.
TARGET_LABELS = {"job", "instance"}


class Selector(NamedTuple):
    """One metric that an expression reads.

    Attributes:
        name: as it is exposed, suffix included.
        labels: those that its matchers name.
    """

    name: str
    labels: frozenset[str]


def find_selectors(expression: str) -> list[Selector]:
    """Return every metric of an expression.

    Raises:
        ValueError: the expression is no PromQL.
    """
    return [
        Selector(node.name, frozenset(matcher.name for matcher in node.matchers.matchers))
        for node in walk(expression)
        if isinstance(node, promql_parser.VectorSelector)
    ]


def find_grouping(expression: str) -> set[str]:
    """Return every label that an expression groups by."""
    return {
        label
        for node in walk(expression)
        if isinstance(node, promql_parser.AggregateExpr) and node.modifier is not None
        for label in node.modifier.labels
    }


def walk(expression: str) -> Iterator[Any]:
    """Return every node of an expression."""
    nodes: list[Any] = []
    # Grafana fills its own variables in later.
    parsed = promql_parser.parse(expression.replace("$__rate_interval", "1m"))
    promql_parser.walk(parsed, lambda node: nodes.append(node) or True)
    return iter(nodes)


def find_metric(exposed: str) -> Metric | None:
    """Return the family of an exposed name; a histogram's samples have suffixes, and its bare name has no sample."""
    if exposed in METRICS:
        return METRICS[exposed] if METRICS[exposed].kind != "histogram" else None
    for suffix in ("_bucket", "_sum", "_count"):
        family = METRICS.get(exposed.removesuffix(suffix))
        if exposed.endswith(suffix) and family is not None and family.kind == "histogram":
            return family
    return None
