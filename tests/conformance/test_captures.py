"""Recordings of real engines, replayed byte for byte behind a running gateway.

The control at the end judges the recordings themselves: no engine's own stream would pass.
"""

import http.client
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance import capture as captures
from conformance.capture import Capture, Json, said_by, said_in, standard_usage
from conformance.verdict import judge_response, judge_stream
from harness.client import Answer, client, create
from harness.processes import Gateway
from harness.upstream import Upstream
from integration.embedded import EmbeddedGateway

# What a stateful recording answered at once is no answer for a gateway that asked in the foreground.
QUEUED = {"vllm-0.32.0/background_post", "vllm-0.32.0/background_post2", "vllm-0.32.0/prev_queued"}
# What an engine let pass although the API does not, or the gateway: servers of tools on its own machine. With the
# parameter at fault.
REFUSED = {
    "llama.cpp-b11434-gemma3-270m/err_required_no_tools": "tool_choice",
    "llama.cpp-b11434-tiny-script/err_required_no_tools": "tool_choice",
    "vllm-0.32.0/logprobs_too_many_stream": "top_logprobs",
    "vllm-0.32.0/tool_mcp_type_nonstream": "tools[0].server_url",
    "vllm-0.32.0/tool_mcp_type_stream": "tools[0].server_url",
}
SERVED = [name for name in captures.names() if name not in {*QUEUED, *REFUSED}]
STREAMED = [name for name in SERVED if captures.load(name).streams]
WHOLE = [name for name in SERVED if name not in STREAMED]
# Engine extensions some of the recorded requests use; a gateway passes them on only where its owner says so.
SETTINGS = {"upstream.allow_fields": '["request_id", "enable_response_messages"]'}


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder: Path = tmp_path_factory.mktemp("captures")
    with Upstream() as upstream:
        upstream.otherwise(captures.replay)
        with Gateway(folder, upstream.url, SETTINGS) as running:
            yield running


def play(gateway: Gateway | EmbeddedGateway, capture: Capture) -> Answer:
    answer = create(gateway.port, capture.request)
    assert answer.status == 200, answer.body
    return answer


def expect_kept(gateway: Gateway | EmbeddedGateway, capture: Capture, response: Json) -> None:
    """What was answered can be read again, unless it failed or was not to be stored."""
    with client(gateway.port) as caller:
        kept = caller.get(f"/v1/responses/{response['id']}")
    if capture.status == "failed" or capture.asked.get("store") is False:
        assert kept.status == 404
    else:
        assert kept.json == response


@pytest.mark.checklist(39, 41, 42, 43, 44)
@pytest.mark.parametrize("name", STREAMED)
def test_streams(gateway: Gateway, name: str) -> None:
    capture = captures.load(name)
    answer = play(gateway, capture)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.headers["x-request-id"]
    assert judge_stream(answer.body) == []
    assert answer.final["status"] == capture.status
    assert said_in(answer.events) == capture.said
    if capture.final is not None:
        assert standard_usage(answer.final["usage"]) == standard_usage(capture.final["usage"])
    expect_kept(gateway, capture, answer.final)


@pytest.mark.checklist(36, 44)
@pytest.mark.parametrize("name", WHOLE)
def test_json(gateway: Gateway, name: str) -> None:
    capture = captures.load(name)
    response = play(gateway, capture).json
    assert judge_response(response) == []
    assert response["status"] == capture.status
    assert [said_by(item) for item in response["output"]] == capture.said
    assert capture.final is not None
    assert standard_usage(response["usage"]) == standard_usage(capture.final["usage"])
    if response["status"] == "incomplete" and response["output"]:
        assert response["output"][-1]["status"] == "incomplete"
    expect_kept(gateway, capture, response)


@pytest.mark.parametrize("name", sorted(QUEUED))
def test_an_engine_that_only_queues_did_not_answer(gateway: Gateway, name: str) -> None:
    answer = create(gateway.port, captures.load(name).request)
    assert answer.status == 502
    assert answer.error["code"] == "upstream_invalid_body"


@pytest.mark.parametrize("name", sorted(REFUSED))
def test_a_request_the_api_does_not_allow_is_refused(gateway: Gateway, name: str) -> None:
    answer = create(gateway.port, captures.load(name).request)
    assert answer.status == 400
    assert answer.error["param"] == REFUSED[name]


def test_the_recordings_are_complete() -> None:
    assert len(captures.names()) == 199
    for name in captures.names():
        capture = captures.load(name)
        assert sum(capture.chunks) == len(capture.raw), name
        assert capture.status in ("completed", "incomplete", "failed", "queued"), name


def test_the_replay_gives_back_the_recorded_bytes() -> None:
    with Upstream() as upstream:
        upstream.otherwise(captures.replay)
        for name in ("vllm-0.32.0/unicode_stream", "llama.cpp-b11434-gemma3-270m/text_nonstream"):
            capture = captures.load(name)
            assert create(upstream.port, {"model": name}).body == capture.raw


def test_a_cut_recording_is_cut_again() -> None:
    capture = captures.load("vllm-0.32.0/engine_killed_mid_stream")
    with Upstream() as upstream:
        upstream.otherwise(captures.replay)
        with pytest.raises(http.client.IncompleteRead) as broken:
            create(upstream.port, {"model": capture.name})
    assert broken.value.partial == capture.raw


@pytest.mark.parametrize("name", STREAMED)
def test_no_engine_stream_would_pass_as_it_is(name: str) -> None:
    assert judge_stream(captures.load(name).raw) != []
