"""Every limit can be watched: how near requests come to it, and how many met it."""

import json
from collections.abc import Iterator

import pytest
from harness.client import RESPONSES, Client, client
from harness.engine import says
from harness.processes import Gateway
from harness.upstream import Upstream
from integration.sizes import EVENT, JSON, KEYS, LINE, RETAINED, SMALL, Sizer, expect_breach, settings
from integration.watched import WatchedGateway

BODY_LIMIT = 65536
HISTOGRAMS = {
    RETAINED: "gateway_retained_bytes",
    JSON: "gateway_upstream_json_bytes",
    LINE: "gateway_upstream_line_bytes",
    EVENT: "gateway_stream_event_bytes",
}
TOOL = {"type": "function", "name": "f"}
TOO_MUCH = {
    "request_too_large": b" " * (BODY_LIMIT + 1),
    "invalid_json": b'{"input":' + b"[" * 101 + b"]" * 101 + b"}",
    "array_above_max_length": json.dumps({"model": "m", "input": "hi", "tools": [TOOL] * 3}).encode(),
}


@pytest.fixture(scope="module")
def watched(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedGateway]:
    small = {
        "server.max_request_body_bytes": str(BODY_LIMIT),
        "responses.max_tools": "2",
        "storage.history_max_responses": "2",
    }
    with WatchedGateway(tmp_path_factory.mktemp("measured"), upstream, settings(SMALL) | small) as running:
        yield running


@pytest.fixture
def caller(watched: WatchedGateway) -> Iterator[Client]:
    with client(watched.port) as running:
        yield running


@pytest.mark.parametrize("key", KEYS)
def test_a_limit_of_a_response(watched: WatchedGateway, upstream: Upstream, gateway: Gateway, key: str) -> None:
    sizer, histogram, breaches = Sizer(upstream, gateway), HISTOGRAMS[key], f'resource="{key}"'
    before = watched.count(f"{histogram}_sum"), watched.count(f"{histogram}_count")
    met = watched.count("gateway_limit_breaches_total", breaches)
    sizer.ask(watched, key, SMALL[key], stream=key != JSON)
    assert watched.count(f"{histogram}_sum") - before[0] == SMALL[key]
    assert watched.count(f"{histogram}_count") - before[1] == 1
    assert watched.count("gateway_limit_breaches_total", breaches) == met
    answer = sizer.ask(watched, key, SMALL[key] + 1, stream=key != JSON)
    expect_breach(answer, key, SMALL[key], stream=key != JSON)
    assert watched.count("gateway_limit_breaches_total", breaches) == met + 1


@pytest.mark.parametrize("code", TOO_MUCH)
def test_a_bound_of_requests(watched: WatchedGateway, caller: Client, code: str) -> None:
    expect_counted(watched, caller, TOO_MUCH[code], code)


def test_a_bound_of_histories(watched: WatchedGateway, upstream: Upstream, caller: Client) -> None:
    body = {"model": upstream.script("chain", says("on")), "input": "hi"}
    # The third continues from two; the next would continue from three.
    for _ in range(3):
        body["previous_response_id"] = caller.create(body).json["id"]
    expect_counted(watched, caller, json.dumps(body).encode(), "history_too_long")


def expect_counted(watched: WatchedGateway, caller: Client, body: bytes, code: str) -> None:
    """The refusal of this body is counted under its code."""
    met = watched.count("gateway_response_errors_total", f'code="{code}"')
    assert caller.call("POST", RESPONSES, body).error["code"] == code
    assert watched.count("gateway_response_errors_total", f'code="{code}"') == met + 1


def test_the_size_of_bodies(watched: WatchedGateway, upstream: Upstream, caller: Client) -> None:
    body = json.dumps({"model": upstream.script("sized", says("on")), "input": "hi" * 1000}).encode()
    before = watched.count("gateway_request_body_bytes_sum")
    assert caller.call("POST", RESPONSES, body).status == 200
    assert watched.count("gateway_request_body_bytes_sum") - before == len(body)


def test_what_the_inference_server_words_makes_no_series(watched: WatchedGateway, caller: Client) -> None:
    # Nothing is scripted for this model, so the server refuses it.
    before = watched.count("gateway_response_errors_total", 'code="upstream"')
    assert caller.create({"model": "unheard-of", "input": "hi"}).status == 404
    assert watched.count("gateway_response_errors_total", 'code="upstream"') == before + 1
