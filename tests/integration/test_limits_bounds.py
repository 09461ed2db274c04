"""Each limit of a response to the byte: where it strikes, where its value comes from, and what a breach leaves behind.

The numbers are rows of the acceptance matrix, over HTTP.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.client import create
from harness.processes import Gateway, run_command
from harness.upstream import Upstream
from integration.databases import DatabaseGateway
from integration.sizes import (
    ALIASES,
    EVENT,
    JSON,
    KEYS,
    SMALL,
    Sizer,
    data_sizes,
    expect_breach,
    expect_no_trace,
    expect_success,
    request,
    settings,
)

MIB = 1 << 20
# Streams are bounded event by event; a JSON answer has none.
FORMS = [
    pytest.param(key, stream, id=f"{key}, {'SSE' if stream else 'JSON'}") for key in KEYS for stream in (True, False)
]
BREACHES = [form for form in FORMS if form.values != (EVENT, False)]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def small(
    request: pytest.FixtureRequest, upstream: Upstream, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[DatabaseGateway]:
    """A gateway with four small limits, on each database."""
    folder = tmp_path_factory.mktemp("small")
    database = f"sqlite:///{folder}/responses.db"
    if request.param == "postgresql":
        database = request.getfixturevalue("postgres_server").create_database()
    with DatabaseGateway(folder, upstream.url, database, settings(SMALL)) as running:
        yield running


@pytest.fixture
def sizer(upstream: Upstream, gateway: Gateway) -> Sizer:
    return Sizer(upstream, gateway)


# ---------------------------------------------------------------- rows 15 to 38: four limits, six times


@pytest.mark.parametrize(("key", "stream"), FORMS)
def test_at_the_limit_passes(small: DatabaseGateway, sizer: Sizer, key: str, stream: bool) -> None:
    before = small.rows()
    expect_success(sizer.ask(small, key, SMALL[key], stream=stream), stream=stream)
    assert small.rows() == before + 1


@pytest.mark.parametrize(("key", "stream"), BREACHES)
def test_one_byte_more_fails_and_leaves_nothing(small: DatabaseGateway, sizer: Sizer, key: str, stream: bool) -> None:
    before = small.rows()
    answer = sizer.ask(small, key, SMALL[key] + 1, stream=stream)
    expect_breach(answer, key, SMALL[key], stream=stream)
    assert small.rows() == before
    expect_no_trace(small, answer)
    expect_success(sizer.ask(small, key, SMALL[key], stream=stream), stream=stream)


def test_the_size_of_events_does_not_bound_json(small: DatabaseGateway, sizer: Sizer) -> None:
    expect_success(sizer.ask(small, EVENT, SMALL[EVENT] + 1, stream=False), stream=False)


@pytest.mark.parametrize("raised", KEYS)
def test_a_limit_raised_alone_changes_no_other(
    start_gateway: Callable[..., Gateway], sizer: Sizer, raised: str
) -> None:
    gateway = start_gateway(settings({**SMALL, raised: MIB}))
    for key, stream in (form.values for form in BREACHES):
        answer = sizer.ask(gateway, key, SMALL[key] + 1, stream=stream)
        if key == raised:
            expect_success(answer, stream=stream)
        else:
            expect_breach(answer, key, SMALL[key], stream=stream)


@pytest.mark.parametrize("sources", ["TOML", "TOML and environment", "environment"])
def test_where_the_value_comes_from(
    upstream: Upstream, tmp_path_factory: pytest.TempPathFactory, sizer: Sizer, sources: str
) -> None:
    folder = tmp_path_factory.mktemp("sources")
    env, limits = {}, SMALL
    if "TOML" in sources:
        env["GATEWAY_CONFIG"] = str(write_toml(folder, {key: str(SMALL[key]) for key in KEYS}))
    if "environment" in sources:
        limits = {key: value + 512 for key, value in SMALL.items()}
        env |= {ALIASES[key]: str(limits[key]) for key in KEYS}
    with Gateway(folder, upstream.url, env=env) as gateway:
        for key in KEYS:
            expect_success(sizer.ask(gateway, key, limits[key], stream=True), stream=True)
            expect_breach(sizer.ask(gateway, key, limits[key] + 1, stream=True), key, limits[key], stream=True)


@pytest.mark.parametrize("value", ["many", "0", "-1"])
@pytest.mark.parametrize("source", ["TOML", "alias", "derived name"])
def test_a_value_that_is_no_size_is_refused_at_the_start(tmp_path: Path, source: str, value: str) -> None:
    if source == "TOML":
        written = f'"{value}"' if value == "many" else value
        file = write_toml(tmp_path, dict.fromkeys(KEYS, written))
        env = {"GATEWAY_CONFIG": str(file)}
        origins = {key: f"{file}:{line}" for line, key in enumerate(KEYS, 2)}
    else:
        names = ALIASES if source == "alias" else {key: derived_name(key) for key in KEYS}
        env = dict.fromkeys(names.values(), value)
        origins = {key: f"env {name}" for key, name in names.items()}
    refusal = refuse_to_start(tmp_path, env)
    for key in KEYS:
        (line,) = [line for line in refusal if f"responses.{key} = " in line]
        assert line.startswith(f"error: {origins[key]}: ")
        assert value in line


def test_two_names_of_one_key_may_not_differ(tmp_path: Path) -> None:
    refusal = refuse_to_start(
        tmp_path, {ALIASES[key]: "4096" for key in KEYS} | {derived_name(k): "8192" for k in KEYS}
    )
    for key in KEYS:
        (line,) = [line for line in refusal if ALIASES[key] in line]
        assert derived_name(key) in line
        assert f"responses.{key}" in line


def test_two_names_of_one_key_may_agree(upstream: Upstream, tmp_path: Path, sizer: Sizer) -> None:
    env = {ALIASES[JSON]: "4096", derived_name(JSON): "4KiB"}
    with Gateway(tmp_path, upstream.url, env=env) as gateway:
        expect_breach(sizer.ask(gateway, JSON, 4097, stream=False), JSON, 4096, stream=False)


# ---------------------------------------------------------------- rows 39 and 40: hardly room for an event


def test_row_39_a_failure_without_output_fits(small: DatabaseGateway, sizer: Sizer) -> None:
    answer = sizer.ask(small, EVENT, SMALL[EVENT] + 1, stream=True)
    expect_breach(answer, EVENT, SMALL[EVENT], stream=True)
    assert answer.deltas()
    assert answer.final["output"] == []
    assert answer.final["instructions"] == "i" * 2400
    assert max(data_sizes(answer.body)) <= SMALL[EVENT]


def test_a_request_too_large_to_be_echoed_is_never_sent(small: DatabaseGateway, upstream: Upstream) -> None:
    before = len(upstream.requests)
    body = {"model": "echo", "input": "hi", "instructions": "i" * SMALL[EVENT]}
    answer = create(small.port, {**body, "stream": True})
    expect_breach(answer, EVENT, SMALL[EVENT], stream=False)
    assert len(upstream.requests) == before
    assert small.rows("echo") == 0


def test_row_39_a_failure_fits_without_instructions(start_gateway: Callable[..., Gateway], sizer: Sizer) -> None:
    gateway = start_gateway(settings({EVENT: sizer.first_event(EVENT)}))
    answer = create(gateway.port, {**request(EVENT), "stream": True})
    assert [event["type"] for event in answer.events] == ["response.created", "response.failed"]
    assert (answer.final["output"], answer.final["instructions"]) == ([], None)
    assert answer.final["error"]["code"] == "response_resource_limit_exceeded"
    expect_no_trace(gateway, answer)


def test_row_40_no_failure_fits(start_gateway: Callable[..., Gateway], upstream: Upstream, sizer: Sizer) -> None:
    limit = sizer.first_event("bare")
    called = len(upstream.calls("bare"))
    gateway = start_gateway(settings({EVENT: limit}))
    answer = create(gateway.port, {**request("bare"), "stream": True})
    first, last = answer.events
    assert [first["type"], last["type"]] == ["response.created", "error"]
    assert [first["sequence_number"], last["sequence_number"]] == [0, 1]
    assert answer.body.endswith(b"\n\ndata: [DONE]\n\n")
    assert data_sizes(answer.body)[0] == limit
    assert data_sizes(answer.body)[1] <= 320
    assert last["code"] == "response_resource_limit_exceeded"
    assert last["message"] == f"Exceeds {EVENT} ({limit} bytes)."
    assert len(upstream.calls("bare")) == called
    assert gateway.rows() == 0
    expect_no_trace(gateway, answer)
    expect_success(create(gateway.port, {**request("bare"), "stream": False}), stream=False)


def test_an_oversized_terminal_is_never_kept(small: DatabaseGateway, sizer: Sizer) -> None:
    before = small.rows()
    for _ in range(30):
        answer = sizer.ask(small, EVENT, SMALL[EVENT] + 1, stream=True)
        expect_breach(answer, EVENT, SMALL[EVENT], stream=True)
        expect_no_trace(small, answer)
        assert small.rows() == before


def write_toml(folder: Path, values: dict[str, str]) -> Path:
    """Write a file with one key a line from line 2 on."""
    file = folder / "gateway.toml"
    file.write_text("\n".join(["[responses]", *(f"{key} = {value}" for key, value in values.items()), ""]))
    return file


def derived_name(key: str) -> str:
    return f"GATEWAY_RESPONSES__{key.upper()}"


def refuse_to_start(folder: Path, env: dict[str, str]) -> list[str]:
    """Start the gateway, which must refuse with the code of an unusable configuration, and return what it says."""
    done = run_command("serve", "--database", f"sqlite:///{folder}/responses.db", env=env)
    assert done.returncode == 2, done.stderr
    assert not (folder / "responses.db").exists()
    return done.stderr.splitlines()
