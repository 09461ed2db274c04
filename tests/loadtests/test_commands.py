"""What `make load` makes of its options, without running anything."""

import pytest
from load import _repeat_command, plan_control
from plan import Plan

OPTIONS = dict.fromkeys(
    ("target", "upstream", "upstream_description", "admin", "users", "seconds", "model", "workers", "remote_workers")
)


def test_the_inference_server_gets_as_many_requests_at_once(plan: Plan) -> None:
    direct = plan_control(plan.vary(run={"users": 24}))
    # Of twelve users one is a JSON user, and one keeps four lanes busy.
    assert direct.run.users == 30
    assert direct.weights == {"json": 1, "sse": 14}
    assert (direct.run.seconds, direct.run.warmup_seconds) == (15.0, 3.0)
    assert (direct.request, direct.slo) == (plan.request, plan.slo)


@pytest.mark.parametrize(("kind", "asked"), [("json", {"json": 3}), ("websocket_chain", {"sse": 3})])
def test_one_kind_alone(plan: Plan, kind: str, asked: dict[str, int]) -> None:
    mix = {**dict.fromkeys(plan.weights, 0), kind: 3}
    direct = plan_control(plan.vary(mix=mix, control={"seconds": 3.0}))
    assert direct.weights == asked
    assert direct.run.warmup_seconds == 1.0


def test_the_command_to_do_it_again() -> None:
    options = {**OPTIONS, "target": "http://127.0.0.1:9000", "users": 3, "overrides": ("run.seconds=5",), "bind": "x:1"}
    options |= {"upstream_description": "vLLM, one L4"}
    environ = {"LOAD_MIX__JSON": "0", "LOAD_API_KEY": "sk-never-shown", "LOAD_PLAN": "mine.toml", "PATH": "/bin"}
    assert _repeat_command("load", options, environ) == (
        "make load TARGET=http://127.0.0.1:9000 UPSTREAM_DESCRIPTION='vLLM, one L4' USERS=3 "
        "ARGS='--set run.seconds=5' LOAD_MIX__JSON=0 LOAD_PLAN=mine.toml"
    )
    assert _repeat_command("capacity", {**OPTIONS, "overrides": ()}, {}) == "make capacity"
