"""Conversations by `previous_response_id`: what the model sees, what is refused, what outlives the process."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from harness.client import Answer, client, create, open_create, read_until
from harness.engine import Answer as EngineAnswer
from harness.engine import call, in_turn, message, says
from harness.processes import Gateway
from harness.upstream import Upstream

TOOLS = [
    {
        "type": "function",
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    }
]


def ask(gateway: Gateway, model: str, given: Any, parent: str | None = None, **members: Any) -> Answer:
    return create(gateway.port, {"model": model, "input": given, "previous_response_id": parent, **members})


def told(gateway: Gateway, model: str, given: Any, parent: str | None = None, **members: Any) -> str:
    """Ask, expect an answer and return its id."""
    answer = ask(gateway, model, given, parent, **members)
    assert answer.status == 200, answer.body
    return answer.json["id"]


def texts_sent(upstream: Upstream, model: str, call_number: int = -1) -> list[str]:
    """The message texts of one upstream call, in order."""
    return [
        text_of(item) for item in items_sent(upstream, model, call_number) if item.get("type", "message") == "message"
    ]


def items_sent(upstream: Upstream, model: str, call_number: int = -1) -> list[dict[str, Any]]:
    """The input items of one upstream call."""
    given = upstream.calls(model)[call_number].body["input"]
    return [{"role": "user", "content": given}] if isinstance(given, str) else given


def text_of(item: dict[str, Any]) -> str:
    content = item["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


def output(call_id: str, text: str = "18C") -> dict[str, str]:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def refused(answer: Answer, code: str) -> None:
    assert answer.status == 400, answer.body
    assert (answer.error["code"], answer.error["type"], answer.error["param"]) == (
        code,
        "invalid_request_error",
        "input",
    )


def test_a_chain_carries_all_turns_in_order(gateway: Gateway, upstream: Upstream) -> None:
    model = upstream.script("chain", in_turn(says("a1"), says("a2"), says("a3")))
    first = told(gateway, model, "q1")
    second = told(gateway, model, "q2", first)
    told(gateway, model, "q3", second)
    assert texts_sent(upstream, model) == ["q1", "a1", "q2", "a2", "q3"]
    assert all("previous_response_id" not in seen.body for seen in upstream.calls(model))
    assert all(seen.body["store"] is False for seen in upstream.calls(model))


def test_forks_do_not_see_each_other(gateway: Gateway, upstream: Upstream) -> None:
    model = upstream.script("fork", in_turn(says("root"), says("left"), says("right"), says("end")))
    parent = told(gateway, model, "q")
    left = told(gateway, model, "go left", parent)
    right = told(gateway, model, "go right", parent)
    assert texts_sent(upstream, model) == ["q", "root", "go right"]
    told(gateway, model, "on", left)
    assert texts_sent(upstream, model) == ["q", "root", "go left", "left", "on"]
    told(gateway, model, "on", right)
    assert texts_sent(upstream, model) == ["q", "root", "go right", "right", "on"]


def test_a_streamed_response_can_be_continued(gateway: Gateway, upstream: Upstream) -> None:
    model = upstream.script("streamed", in_turn(says("a1"), says("a2")))
    answer = ask(gateway, model, "q1", stream=True)
    told(gateway, model, "q2", answer.final["id"])
    assert texts_sent(upstream, model) == ["q1", "a1", "q2"]


@pytest.mark.checklist(47)
def test_an_unstored_response_cannot_be_continued(gateway: Gateway, upstream: Upstream) -> None:
    model = upstream.script("unstored", says("a1"))
    answer = ask(gateway, model, "q2", told(gateway, model, "q1", store=False))
    assert answer.status == 400
    assert (answer.error["code"], answer.error["param"]) == ("previous_response_not_found", "previous_response_id")
    assert len(upstream.calls(model)) == 1


class TestToolOutputs:
    """A parent that called one tool."""

    @pytest.fixture
    def model(self, upstream: Upstream, request: pytest.FixtureRequest) -> str:
        calls = EngineAnswer([call("get_weather", '{"city":"Paris"}', "call_paris")])
        return upstream.script(f"tool {request.node.name}", in_turn(calls, says("It is mild.")))

    @pytest.fixture
    def parent(self, gateway: Gateway, model: str) -> str:
        return told(gateway, model, "weather?", tools=TOOLS)

    def call_id(self, gateway: Gateway, parent: str) -> str:
        with client(gateway.port) as caller:
            return caller.get(f"/v1/responses/{parent}").json["output"][0]["call_id"]

    @pytest.mark.checklist(39, 40, 51)
    def test_an_output_reaches_the_model_behind_its_call(
        self, gateway: Gateway, upstream: Upstream, model: str, parent: str
    ) -> None:
        call_id = self.call_id(gateway, parent)
        told(gateway, model, [output(call_id)], parent, tools=TOOLS)
        question, asked, answered = items_sent(upstream, model)
        assert text_of(question) == "weather?"
        assert (asked["type"], asked["name"], asked["arguments"]) == (
            "function_call",
            "get_weather",
            '{"city":"Paris"}',
        )
        assert (answered["type"], answered["output"]) == ("function_call_output", "18C")
        assert asked["call_id"] == answered["call_id"] == call_id

    def test_an_unknown_output_is_refused(self, gateway: Gateway, upstream: Upstream, model: str, parent: str) -> None:
        call_id = self.call_id(gateway, parent)
        refused(ask(gateway, model, [output(call_id), output("call_unknown")], parent), "invalid_tool_output")
        assert len(upstream.calls(model)) == 1

    def test_a_second_output_for_one_call_is_refused(
        self, gateway: Gateway, upstream: Upstream, model: str, parent: str
    ) -> None:
        call_id = self.call_id(gateway, parent)
        refused(ask(gateway, model, [output(call_id), output(call_id, "19C")], parent), "invalid_tool_output")
        assert len(upstream.calls(model)) == 1

    def test_an_output_that_was_given_before_is_refused(self, gateway: Gateway, model: str, parent: str) -> None:
        call_id = self.call_id(gateway, parent)
        answered = told(gateway, model, [output(call_id)], parent)
        refused(ask(gateway, model, [output(call_id)], answered), "invalid_tool_output")

    def test_a_missing_output_is_refused(self, gateway: Gateway, upstream: Upstream, model: str, parent: str) -> None:
        refused(ask(gateway, model, "never mind", parent), "missing_tool_output")
        assert len(upstream.calls(model)) == 1

    def test_after_a_refusal_the_parent_can_still_be_continued(self, gateway: Gateway, model: str, parent: str) -> None:
        refused(ask(gateway, model, "never mind", parent), "missing_tool_output")
        told(gateway, model, [output(self.call_id(gateway, parent))], parent)


@pytest.mark.checklist(51)
def test_an_output_without_any_call_is_refused(gateway: Gateway, upstream: Upstream) -> None:
    model = upstream.script("orphan", says("never"))
    refused(ask(gateway, model, [output("call_unknown")]), "invalid_tool_output")
    assert upstream.calls(model) == []


def test_an_incomplete_answer_is_continued_with_its_text(gateway: Gateway, upstream: Upstream) -> None:
    broken_off = EngineAnswer([message("half of it")], status="incomplete")
    model = upstream.script("incomplete text", in_turn(broken_off, says("the rest")))
    told(gateway, model, "go on", told(gateway, model, "tell"))
    assert texts_sent(upstream, model) == ["tell", "half of it", "go on"]


@pytest.mark.parametrize("stream", [True, False])
def test_an_incomplete_call_is_left_out_and_needs_no_output(gateway: Gateway, upstream: Upstream, stream: bool) -> None:
    broken_off = EngineAnswer([message("wait"), call("get_weather", '{"ci', "call_half")], status="incomplete")
    model = upstream.script(f"incomplete call {stream}", in_turn(broken_off, says("fine")))
    answer = ask(gateway, model, "weather?", tools=TOOLS, stream=stream)
    response = answer.final if stream else answer.json
    assert [item["status"] for item in response["output"]] == ["completed", "incomplete"]
    told(gateway, model, "never mind", response["id"])
    assert [text_of(item) for item in items_sent(upstream, model)] == ["weather?", "wait", "never mind"]


def test_an_incomplete_call_that_is_sent_again_is_left_out(gateway: Gateway, upstream: Upstream) -> None:
    model = upstream.script("incomplete call resent", says("fine"))
    broken_off = {
        "type": "function_call",
        "call_id": "call_half",
        "name": "f",
        "arguments": "{",
        "status": "incomplete",
    }
    told(
        gateway, model, [{"role": "user", "content": "weather?"}, broken_off, {"role": "user", "content": "never mind"}]
    )
    assert texts_sent(upstream, model) == ["weather?", "never mind"]
    assert len(items_sent(upstream, model)) == 2


@pytest.mark.checklist(46)
def test_history_outlives_a_restart(start_gateway: Callable[..., Gateway], upstream: Upstream) -> None:
    model = upstream.script("restart", in_turn(says("a1"), says("a2"), says("a3")))
    gateway = start_gateway()
    first = told(gateway, model, "q1")
    second = ask(gateway, model, "q2", first, stream=True).final["id"]
    assert gateway.stop() == 0
    gateway.start("/livez")
    told(gateway, model, "q3", second)
    assert texts_sent(upstream, model) == ["q1", "a1", "q2", "a2", "q3"]


@pytest.mark.parametrize("attempt", range(3))
def test_who_saw_completed_can_continue_even_after_a_kill(
    start_gateway: Callable[..., Gateway], upstream: Upstream, attempt: int
) -> None:
    model = upstream.script(f"kill {attempt}", in_turn(says("a1"), says("a2")))
    gateway = start_gateway()
    connection = open_create(gateway.port, {"model": model, "input": "q1", "stream": True})
    seen = read_until(connection, b"event: response.completed")
    gateway.kill()
    connection.close()
    response_id = re.findall(rb"resp_[0-9a-f]{32}", seen)[0].decode()
    gateway.start("/livez")
    told(gateway, model, "q2", response_id)
    assert texts_sent(upstream, model) == ["q1", "a1", "q2"]
