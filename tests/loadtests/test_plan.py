"""The plan of a load run: where its keys come from, and what is said of wrong ones."""

from pathlib import Path

import pytest
from plan import PLAN_FILE, PlanError, load_plan, read_api_key

KEY = "sk-never-shown"


def test_the_file_sets_every_key() -> None:
    plan = load_plan()
    assert (plan.run.shape, plan.run.users, plan.slo.share) == ("constant", 16, 0.99)
    assert plan.weights == {"json": 1, "sse": 4, "websocket": 2, "lanes": 1, "chain": 2, "websocket_chain": 2}


def test_flags_go_before_variables_and_those_before_the_file(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("[run]\nusers = 2\nseconds = 5\nthink_seconds = 0.5\n[request]\nbody = {temperature = 0}\n")
    environ = {"LOAD_RUN__USERS": "3", "LOAD_RUN__SECONDS": "7", "LOAD_REQUEST__STORE": "false", "PATH": "/bin"}
    plan = load_plan(file, environ, ["run.users=4", "request.prompt={id} hello"])
    assert (plan.run.users, plan.run.seconds, plan.run.think_seconds) == (4, 7.0, 0.5)
    assert (plan.request.store, plan.request.prompt, plan.request.body) == (False, "{id} hello", {"temperature": 0})
    assert plan.steps == load_plan().steps


def test_a_table_can_be_given_as_json() -> None:
    body = load_plan(environ={"LOAD_REQUEST__BODY": '{"max_output_tokens": 5}'}).request.body
    assert body == {"max_output_tokens": 5}


def test_a_kind_can_be_left_out() -> None:
    assert "lanes" not in load_plan(overrides=["mix.lanes=0"]).weights


def test_every_fault_is_told_with_its_place_and_a_way_out(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text('run = 5\n[slo]\nttft = 3\nshare = 1.5\n[steps]\nfactor = "two"\n[mxi]\njson = 1\n')
    with pytest.raises(PlanError) as caught:
        load_plan(file, {"LOAD_LANES__COUNT": "none"}, ["chain.turns=0"])
    told = str(caught.value).splitlines()
    assert told == [
        f"{file}: [run] must be a table",
        f"{file}: steps.factor: Expected `float`, got `str`",
        "LOAD_LANES__COUNT: lanes.count: Expected `int`, got `str`",
        "--set: chain.turns: Expected `int` >= 1",
        f"{file}: slo.share: Expected `float` <= 1.0",
        f"{file}: unknown key slo.ttft (did you mean ttft_ms?)",
        f"{file}: unknown section [mxi] (did you mean mix?)",
    ]


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        ([f"mix.{kind}=0" for kind in load_plan().weights], "mix: every kind is 0"),
        (["run.seconds=2"], "run.warmup_seconds: must be less than run.seconds"),
        (["steps.max_users=1"], "steps.first_users: must not be more than steps.max_users"),
        (["users=3"], "--set users=3: this is not section.key=value"),
        (["run.shape=spiral"], "run.shape: Invalid enum value 'spiral'"),
    ],
)
def test_what_does_not_fit_is_refused(overrides: list[str], told: str) -> None:
    with pytest.raises(PlanError, match=told.replace("[", r"\[")):
        load_plan(overrides=overrides)


def test_a_variable_that_is_no_key_is_not_passed_over() -> None:
    with pytest.raises(PlanError, match="LOAD_USERS names no key"):
        load_plan(environ={"LOAD_USERS": "3"})


@pytest.mark.parametrize(("content", "told"), [(None, "cannot be read"), ("[run", "is not valid TOML")])
def test_a_file_that_cannot_be_used(tmp_path: Path, content: str | None, told: str) -> None:
    file = tmp_path / "own.toml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(PlanError, match=told):
        load_plan(file)


def test_the_key_comes_from_a_variable_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text(f"{KEY}\n")
    assert read_api_key({"LOAD_API_KEY_FILE": str(file)}) == read_api_key({"LOAD_API_KEY": KEY}) == KEY
    assert read_api_key({}) is None


@pytest.mark.parametrize(
    ("environ", "told"),
    [
        ({"LOAD_API_KEY": KEY, "LOAD_API_KEY_FILE": "/nowhere"}, "both set"),
        ({"LOAD_API_KEY_FILE": "/nowhere"}, "/nowhere cannot be read"),
        ({"LOAD_API_KEY": f"{KEY}\r\nx: y"}, "no HTTP header can carry"),
    ],
)
def test_a_key_that_cannot_be_used_is_not_repeated(environ: dict[str, str], told: str) -> None:
    with pytest.raises(PlanError, match=told) as caught:
        read_api_key(environ)
    assert KEY not in str(caught.value)


def test_a_key_is_no_key_of_the_plan() -> None:
    assert load_plan(environ={"LOAD_API_KEY": KEY, "LOAD_PLAN": str(PLAN_FILE)}) == load_plan()
