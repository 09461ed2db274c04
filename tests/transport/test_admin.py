import pytest
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry.metrics import Metrics
from gateway.transport.admin import build_admin_app
from gateway.transport.health import Readiness
from gateway.transport.hosts import HostPolicy


def expose_of(metrics):
    async def expose():
        return metrics.render()

    return expose


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def app(metrics, store, upstreams):
    return build_admin_app(expose_of(metrics), Readiness(store, upstreams), HostPolicy("127.0.0.1"))


async def test_metrics_are_prometheus_text(app, call, metrics):
    metrics.responses_total.labels(transport="sse", status="completed").inc()
    answer = await call(app, "GET", "/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(answer.text)}
    (sample,) = (one for one in families["gateway_responses"].samples if one.name == "gateway_responses_total")
    assert (sample.labels, sample.value) == ({"transport": "sse", "status": "completed"}, 1)


async def test_probes_answer_here_too(app, call, store):
    assert (await call(app, "GET", "/livez")).status_code == 200
    store.healthy = False
    assert (await call(app, "GET", "/readyz")).status_code == 503


async def test_rebound_names_are_refused(app, call):
    answer = await call(app, "GET", "/metrics", headers={"host": "evil.example"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (403, "host_not_allowed")


async def test_unknown_routes_get_the_envelope(app, call):
    answer = await call(app, "GET", "/status")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found")
