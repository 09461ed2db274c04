import pytest
from litestar import Litestar
from litestar.di import Provide

from gateway import __version__
from gateway.transport.health import DiscreetChecks, Readiness, health, livez, readyz, version


@pytest.fixture
def readiness(store, upstreams):
    return Readiness(store, upstreams)


@pytest.fixture
def app(readiness):
    return Litestar(
        [livez, readyz, health, version],
        dependencies={"readiness": Provide(lambda: readiness, sync_to_thread=False)},
        openapi_config=None,
        logging_config=None,
    )


async def test_ready_when_everything_is_there(app, call):
    answer = await call(app, "GET", "/readyz")
    assert (answer.status_code, answer.json()) == (200, {"ready": True, "reasons": []})


@pytest.mark.parametrize("path", ["/readyz", "/health"])
async def test_an_upstream_that_is_down_makes_it_not_ready(app, call, upstreams, path):
    upstreams["default"].healthy = False
    answer = await call(app, "GET", path)
    assert answer.status_code == 503
    assert answer.headers["retry-after"] == "1"
    assert answer.json() == {"ready": False, "reasons": ["upstream default: No connection."]}


async def test_one_healthy_upstream_of_several_is_enough(app, call, upstreams):
    upstreams["second"] = type(upstreams["default"])()
    upstreams["second"].healthy = False
    assert (await call(app, "GET", "/readyz")).status_code == 200


async def test_a_broken_store_makes_it_not_ready(app, call, store):
    store.healthy = False
    assert (await call(app, "GET", "/readyz")).json()["reasons"] == ["storage: The disk is full."]


async def test_draining_makes_it_not_ready_but_leaves_it_alive(app, call, readiness):
    readiness.begin_drain()
    answer = await call(app, "GET", "/readyz")
    assert (answer.status_code, answer.json()["reasons"]) == (503, ["draining: shutting down"])
    assert (await call(app, "GET", "/livez")).json() == {"live": True}


async def test_verbose_lists_every_check(app, call, store):
    store.healthy = False
    answer = await call(app, "GET", "/readyz?verbose")
    assert answer.status_code == 503
    assert answer.json() == {
        "ready": False,
        "checks": [
            {"name": "draining", "healthy": True, "detail": "no"},
            {"name": "storage", "healthy": False, "detail": "The disk is full."},
            {"name": "upstream default", "healthy": True, "detail": "ok"},
        ],
    }


async def test_health_is_an_empty_object(app, call):
    answer = await call(app, "GET", "/health")
    assert (answer.status_code, answer.json()) == (200, {})


async def test_version_names_the_product(app, call):
    assert (await call(app, "GET", "/version")).json() == {"name": "responses-gateway", "version": __version__}


async def test_strangers_are_told_what_fails_and_not_how(readiness, store, upstreams):
    report = await DiscreetChecks(readiness).check()
    assert report.ready
    assert {check.detail for check in report.checks} == {"as it should be"}
    store.healthy = False
    upstreams["default"].healthy = False
    report = await DiscreetChecks(readiness).check()
    assert not report.ready
    assert [(check.name, check.healthy) for check in report.checks] == [
        *(("draining", True), ("storage", False), ("upstream default", False)),
    ]
    assert {check.detail for check in report.checks if not check.healthy} == {
        "not as it should be; the admin listener tells more"
    }
