"""Which inference server serves which model."""

import pytest
from engine.doubles import ScriptedUpstream

from gateway.config.schema import ResponsesConfig, UpstreamConfig
from gateway.engine.admission import Seats
from gateway.engine.routing import Routing
from gateway.protocol.errors import NotFound, UpstreamUnavailable

DOWN = UpstreamUnavailable("No connection.")


def build(upstreams=None, **configs):
    upstreams = {name: ScriptedUpstream() for name in configs} | (upstreams or {})
    seats = {name: Seats(name, 1, 0) for name in configs}
    routing = Routing(
        upstreams,
        seats,
        {name: UpstreamConfig(**given) for name, given in configs.items()},
        ResponsesConfig(max_tools=3),
    )
    return routing, upstreams


def listed(*names):
    return ScriptedUpstream(models=[{"id": name} for name in names])


def test_a_model_goes_to_the_server_that_lists_it():
    routing, upstreams = build(a={"models": ["x"]}, b={"models": ["y", "z"]})
    assert routing.choose("z").upstream is upstreams["b"]
    assert routing.choose("z").model == "z"


def test_an_alias_goes_out_under_the_model_it_stands_for():
    routing, upstreams = build(a={"models": ["x"]}, b={"models": ["y"], "aliases": {"small": "y"}})
    assert (routing.choose("small").upstream, routing.choose("small").model) == (upstreams["b"], "y")


def test_an_alias_comes_before_a_model_of_that_name():
    routing, upstreams = build(a={"models": ["x"]}, b={"aliases": {"x": "y"}})
    assert (routing.choose("x").upstream, routing.choose("x").model) == (upstreams["b"], "y")


def test_a_server_without_models_takes_all_others():
    routing, upstreams = build(a={"models": ["x"]}, b={}, c={})
    assert routing.choose("x").upstream is upstreams["a"]
    assert (routing.choose("what").upstream, routing.choose("what").model) == (upstreams["b"], "what")


def test_the_first_server_that_lists_a_model_gets_it():
    routing, upstreams = build(a={"models": ["x"]}, b={"models": ["x"]})
    assert routing.choose("x").upstream is upstreams["a"]


def test_a_model_nobody_serves_is_named():
    routing, _ = build(a={"models": ["x"]})
    with pytest.raises(NotFound) as refused:
        routing.choose("y" * 500)
    assert (refused.value.status, refused.value.code, refused.value.param) == (404, "model_not_found", "model")
    assert "y" * 128 in refused.value.message
    assert "y" * 129 not in refused.value.message


@pytest.mark.parametrize(
    ("configs", "expected"), [({"a": {"models": ["x"]}, "b": {}}, "b"), ({"a": {"models": ["x"]}}, "a")]
)
def test_where_a_request_without_a_model_would_go(configs, expected):
    routing, upstreams = build(**configs)
    assert routing.default.upstream is upstreams[expected]


def test_each_server_has_its_own_rules_and_seats():
    routing, _ = build(
        a={"models": ["x"], "allow_fields": ("priority",), "cache_salt_per_principal": True},
        b={"remote_images": "forward", "aliases": {"small": "y"}, "forward_headers": ("X-Team",)},
    )
    one, other = routing.choose("x"), routing.choose("y")
    assert (one.policy.allow_fields, one.policy.remote_images, one.salted) == ({"priority"}, False, True)
    assert (other.policy.allow_fields, other.policy.remote_images, other.salted) == (set(), True, False)
    assert (one.headers, other.headers) == (set(), {b"x-team"})
    assert one.policy.max_tools == other.policy.max_tools == 3
    assert one.seats is not other.seats
    assert routing.choose("small").seats is other.seats


async def test_the_list_holds_what_the_servers_report_and_the_aliases():
    report = {"id": "y", "object": "model", "created": 7, "owned_by": "vllm", "max_model_len": 4096}
    routing, _ = build({"a": ScriptedUpstream(models=[report])}, a={"aliases": {"small": "y", "other": "loaded-later"}})
    assert await routing.models() == [
        report,
        {**report, "id": "small"},
        {"id": "other", "object": "model", "created": 0, "owned_by": "upstream"},
    ]


async def test_a_model_is_listed_once_and_only_where_requests_for_it_go():
    routing, _ = build({"a": listed("x", "hidden"), "b": listed("x", "y")}, a={"models": ["x"]}, b={})
    assert [model["id"] for model in await routing.models()] == ["x", "y"]


async def test_a_model_outside_every_list_is_not_shown():
    routing, _ = build({"a": listed("x", "hidden")}, a={"models": ["x"]})
    assert [model["id"] for model in await routing.models()] == ["x"]


async def test_what_is_no_model_is_left_out():
    routing, _ = build({"a": ScriptedUpstream(models=["x", {"id": 5}, {}, None, {"id": "y"}])}, a={})
    assert [model["id"] for model in await routing.models()] == ["y"]


async def test_a_list_that_is_none_counts_as_empty(monkeypatch):
    routing, upstreams = build(a={})

    async def models():
        return {"data": "x"}

    monkeypatch.setattr(upstreams["a"], "models", models)
    assert await routing.models() == []


async def test_one_server_that_is_down_hides_only_its_own_models():
    routing, _ = build({"a": ScriptedUpstream(models=DOWN), "b": listed("y")}, a={"models": ["x"]}, b={"models": ["y"]})
    assert [model["id"] for model in await routing.models()] == ["y"]


async def test_without_any_server_there_is_no_list():
    routing, _ = build(
        {"a": ScriptedUpstream(models=DOWN), "b": ScriptedUpstream(models=DOWN)}, a={"models": ["x"]}, b={}
    )
    with pytest.raises(UpstreamUnavailable):
        await routing.models()


# ---------------------------------------------------------------- further paths

PATH = "/v1/embeddings"


def test_a_further_path_goes_to_the_first_server_that_lists_it():
    routing, upstreams = build(a={}, b={"passthrough": [PATH]}, c={"passthrough": [PATH]})
    assert not routing.by_model
    assert routing.choose_for(PATH, None).upstream is upstreams["b"]
    assert routing.choose_for(PATH, None).model == ""


def test_the_model_chooses_among_the_servers_of_a_further_path():
    paths = {"passthrough": [PATH]}
    routing, upstreams = build(a={"models": ["x"], **paths}, b={"models": ["y"], "aliases": {"small": "y"}, **paths})
    assert routing.by_model
    assert routing.choose_for(PATH, "y").upstream is upstreams["b"]
    assert routing.choose_for(PATH, "small").model == "y"
    assert routing.choose_for(PATH, None).upstream is upstreams["a"]


@pytest.mark.parametrize("model", ["x", "unknown"])
def test_a_model_that_is_not_served_at_a_further_path(model):
    routing, _ = build(a={"models": ["x"]}, b={"models": ["y"], "passthrough": [PATH]})
    with pytest.raises(NotFound) as refused:
        routing.choose_for(PATH, model)
    assert (refused.value.code, refused.value.param) == ("model_not_found", "model")
