import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families
from telemetry.status_samples import make_status

from gateway.telemetry.metrics import Metrics
from gateway.telemetry.status import Status
from gateway.transport.admin import build_admin_app
from gateway.transport.health import Readiness
from gateway.transport.hosts import HostPolicy
from gateway.transport.status_page import POLICY

STATUS = make_status(version="1.2.3")


def expose_of(metrics):
    async def expose():
        return metrics.render()

    return expose


async def read_status():
    return STATUS


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def app(metrics, store, upstreams):
    return build_admin_app(
        expose_of(metrics),
        Readiness(store, upstreams),
        HostPolicy("127.0.0.1"),
        read_status=read_status,
        read_config=lambda: {"server.port": {"value": 9000, "origin": "default"}},
    )


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
    answer = await call(app, "GET", "/statistics")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "route_not_found")


async def test_the_status_is_told_to_programs(app, call):
    answer = await call(app, "GET", "/status.json")
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == ("application/json", "no-store")
    assert msgspec.json.decode(answer.content, type=Status) == STATUS


async def test_the_configuration_in_effect_is_shown(app, call):
    answer = await call(app, "GET", "/config")
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == ("application/json", "no-store")
    assert answer.json() == {"server.port": {"value": 9000, "origin": "default"}}


@pytest.mark.parametrize("path", ["/", "/status", "/metrics", "/status.json", "/config", "/livez", "/readyz"])
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
async def test_nothing_can_be_changed_here(app, call, path, method):
    assert (await call(app, method, path)).status_code == 405


@pytest.mark.parametrize("path", ["/", "/status"])
async def test_the_status_is_shown_to_people(app, call, path):
    answer = await call(app, "GET", path)
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert answer.headers["content-security-policy"] == POLICY
    assert (answer.headers["cache-control"], answer.headers["x-content-type-options"]) == ("no-store", "nosniff")
    assert "Responses Gateway 1.2.3" in answer.text
    assert 'content="5"' in answer.text


async def test_who_looks_decides_how_often(app, call):
    assert "http-equiv" not in (await call(app, "GET", "/status?refresh=0")).text
    assert 'content="60"' in (await call(app, "GET", "/status?refresh=60")).text
    for refused in ("-1", "3601", "x"):
        answer = await call(app, "GET", f"/status?refresh={refused}")
        assert (answer.status_code, answer.json()["error"]["param"]) == (400, "refresh")
