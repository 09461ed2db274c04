"""Where controls find their responses: how many are known, for how long, and in which numbers they go on."""

import pytest
from protocol.test_steering import STUBS, a_steer

from gateway.protocol.errors import RateLimitExceeded
from gateway.protocol.injection import Standing
from gateway.protocol.requests import RequestPolicy
from gateway.protocol.response_routes import Route, RouteLimits, Routes
from gateway.protocol.steering import SteerPhase


def a_route(name, lane=None):
    return Route(name, lane, RequestPolicy(), False, None)


def known(routes, now=0.0):
    return [route.response_id for route in list(routes) if routes.find(route.response_id, now)]


def run(routes, name, *, at=0.0, steers=0, required=(), lane=None):
    """Have a response begin, take steers, and end as completed; returns it and what had to go for it."""
    routes.reserve()
    route = a_route(name, lane)
    routes.open(route)
    for number in range(steers):
        route.steers.add(a_steer(number))
    route.end(7, at, "completed", required)
    return route, routes.leave(route)


def build(most=3, seconds=60.0):
    return Routes(RouteLimits(max_completed=most, completed_seconds=seconds))


def test_numbers_go_on_behind_the_end():
    routes = build()
    route, _ = run(routes, "resp_1")
    assert [routes.number(route), routes.number(None), routes.number(route), routes.number(None)] == [7, 0, 8, 1]


@pytest.mark.agents(83)
def test_what_has_ended_is_known_for_some_time():
    routes = build()
    run(routes, "resp_1", at=100.0)
    assert routes.find("resp_1", 159.0).ended
    assert routes.find("resp_1", 161.0) is None
    assert list(routes) == []


@pytest.mark.agents(83)
def test_the_oldest_of_too_many_is_forgotten():
    routes = build(most=2)
    for number in range(4):
        run(routes, f"resp_{number}")
    assert known(routes) == ["resp_2", "resp_3"]


def test_what_waits_with_steers_stays_longest():
    routes = build(most=2)
    kept, _ = run(routes, "resp_0", steers=1, required=STUBS)
    run(routes, "resp_1")
    run(routes, "resp_2")
    assert known(routes, now=1000.0) == ["resp_0"]
    assert routes.find_waiting("resp_0", None) is kept
    _, lost = run(routes, "resp_3", steers=1, required=STUBS)
    assert lost == []
    _, lost = run(routes, "resp_4", steers=1, required=STUBS)
    assert [route.response_id for route in lost] == ["resp_0"]


def test_where_a_response_stands_for_those_who_inject():
    alone, tree = a_route("resp_1"), a_route("resp_2")
    tree.agents = True
    assert (alone.standing, tree.standing) == (Standing.ALONE, Standing.WORKING)
    tree.end(3, 0.0, "completed", ())
    assert tree.standing is Standing.ENDED


def test_what_passes_its_steers_on_is_never_forgotten():
    routes = build(most=1)
    run(routes, "resp_0", steers=1)
    run(routes, "resp_1", steers=1)
    assert known(routes, now=1000.0) == ["resp_0", "resp_1"]


def test_a_create_takes_steers_of_its_lane_and_of_what_it_names():
    routes = build()
    route, _ = run(routes, "resp_0", steers=1, required=STUBS, lane="a")
    run(routes, "resp_1", required=STUBS, lane="a")
    assert routes.find_waiting("resp_0", "a") is route
    for parent, lane in (("resp_0", None), ("resp_0", "b"), ("resp_1", "a"), ("resp_2", "a"), (None, "a"), (5, "a")):
        assert routes.find_waiting(parent, lane) is None


def test_places_are_bounded_and_come_back():
    routes = build(most=1)
    routes.reserve()
    with pytest.raises(RateLimitExceeded, match="completed_routes_max"):
        routes.reserve()
    assert routes.leave(None) == ()
    routes.reserve()
    begun = a_route("resp_1")
    routes.open(begun)
    assert routes.find("resp_1", 0.0) is begun
    assert routes.leave(begun) == (), "it was never told of"
    assert list(routes) == []


@pytest.mark.parametrize(
    ("status", "required", "phase"),
    [
        ("completed", (), SteerPhase.COMPLETED),
        ("completed", STUBS, SteerPhase.WAITING),
        ("incomplete", STUBS, SteerPhase.INACTIVE),
        ("failed", STUBS, SteerPhase.INACTIVE),
    ],
)
def test_a_response_nobody_steered_stands_where_its_end_has_left_it(status, required, phase):
    early, late = a_route("resp_1"), a_route("resp_2")
    assert early.steers.phase is SteerPhase.RUNNING
    for route in (early, late):
        assert not route.end(7, 0.0, status, required)
    assert late.steered is None, "nothing is kept for steers that have not come"
    assert (early.steers.phase, early.steers.required) == (late.steers.phase, late.steers.required)
    assert late.steers.phase is phase
