"""Recordings of real engines, told again as chats behind a gateway that speaks Chat Completions to its upstream.

What the recorded engine said reaches the caller in the same events, judged by the same rules as in `test_captures`.
"""

from collections.abc import Iterator

import pytest
from conformance import capture as captures
from conformance import chats
from conformance.capture import said_by, said_in, standard_usage
from conformance.test_captures import SETTINGS, STREAMED, WHOLE, expect_kept, play
from conformance.verdict import judge_response, judge_stream
from harness.upstream import Upstream
from integration.embedded import EmbeddedGateway

from gateway.config import load_config

# The long ones say nothing here that shorter ones do not.
SHORT = [name for name in STREAMED if len(captures.load(name).raw) < 100_000]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedGateway]:
    with Upstream() as upstream:
        upstream.route("/v1/chat/completions", chats.replay)
        own = {
            **SETTINGS,
            "upstream.url": upstream.url,
            "upstream.api": "chat_completions",
            "storage.url": f"sqlite:///{tmp_path_factory.mktemp('chats')}/gateway.db",
            "server.port": "0",
            "admin.enabled": "false",
        }
        config = load_config(None, {}, [f"{name}={value}" for name, value in own.items()]).config
        with EmbeddedGateway(config) as running:
            yield running


@pytest.mark.parametrize("name", SHORT)
def test_streams(gateway: EmbeddedGateway, name: str) -> None:
    capture = captures.load(name)
    answer = play(gateway, capture)
    assert judge_stream(answer.body) == []
    assert answer.final["status"] == capture.status
    assert said_in(answer.events) == chats.told(capture.said)
    if capture.final is not None:
        assert standard_usage(answer.final["usage"]) == standard_usage(capture.final["usage"])
    expect_kept(gateway, capture, answer.final)


@pytest.mark.parametrize("name", WHOLE)
def test_json(gateway: EmbeddedGateway, name: str) -> None:
    capture = captures.load(name)
    response = play(gateway, capture).json
    assert judge_response(response) == []
    assert response["status"] == capture.status
    assert [said_by(item) for item in response["output"]] == chats.told(capture.said)
    assert capture.final is not None
    assert standard_usage(response["usage"]) == standard_usage(capture.final["usage"])
    expect_kept(gateway, capture, response)


def test_most_recordings_are_told() -> None:
    assert len(SHORT) > 70
    assert len(WHOLE) > 80
