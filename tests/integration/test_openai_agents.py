"""What openai's library for Python offers for several agents, as its users call it."""

from collections.abc import Iterator
from typing import Any

import pytest
from harness.engine import Answer, call, says
from harness.processes import Gateway
from harness.upstream import Upstream
from integration.paced import FIRST, SECOND, Paced
from integration.trees import ALPHA, ON, ROOT, TOOL, agent_of, play
from openai import OpenAI

# The library opens its sockets in a way that a newer `websockets` has another name for.
pytestmark = pytest.mark.filterwarnings("ignore:connect.. must be used:DeprecationWarning")

BETA = "/root/beta"
TOKEN = "responses_multi_agent=v1"
TOOLS: Any = [TOOL]
AGENTS: Any = ON
PROPOSAL = Answer([call("get_proposal", '{"proposal": "alpha"}', "c_1")])
WAIT = Answer([call("wait_agent", "{}", "w_1")])


def spawn(*names: str) -> Answer:
    return Answer(
        [call("spawn_agent", f'{{"task_name": "{name}", "message": "Look."}}', f"s_{name}") for name in names]
    )


@pytest.fixture
def library(gateway: Gateway) -> Iterator[OpenAI]:
    with OpenAI(base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="unused", max_retries=0) as made:
        yield made


def output(call_id: str) -> Any:
    return [{"type": "function_call_output", "call_id": call_id, "output": "six weeks"}]


def text_of(event: Any) -> str:
    return str(event.response.output[0].content[0].text)


def final_answers(response: Any) -> dict[str, str]:
    return {
        item.agent.agent_name: item.content[0].text
        for item in response.output
        if item.type == "message" and item.phase == "final_answer"
    }


def test_over_http_a_tool_is_answered_by_the_next_request(library: OpenAI, upstream: Upstream) -> None:
    script = {ROOT: [spawn("alpha"), WAIT, WAIT, says("Take it.")], ALPHA: [PROPOSAL, says("It takes six weeks.")]}
    model = upstream.script("library over http", play(script))
    given: Any = {"model": model, "tools": TOOLS, "betas": [TOKEN]}
    first = library.beta.responses.create(input="Compare.", multi_agent=AGENTS, **given)
    (asked,) = [item for item in first.output if item.type == "function_call"]
    assert asked.agent is not None
    assert (first.status, asked.agent.agent_name, asked.name) == ("completed", ALPHA, "get_proposal")
    assert [item.action for item in first.output if item.type == "multi_agent_call"] == ["spawn_agent", "wait_agent"]
    second = library.beta.responses.create(input=output(asked.call_id), previous_response_id=first.id, **given)
    assert final_answers(second) == {ALPHA: "It takes six weeks.", ROOT: "Take it."}
    kept = library.beta.responses.retrieve(second.id, betas=[TOKEN])
    assert kept.output == second.output
    assert [item.type for item in library.beta.responses.input_items.list(second.id)] == ["function_call_output"]


def test_over_http_events_are_read_as_they_come(library: OpenAI, upstream: Upstream) -> None:
    script = {ROOT: [spawn("alpha"), WAIT, says("Take it.")], ALPHA: [says("It takes six weeks.")]}
    model = upstream.script("library streaming", play(script))
    spoken = {ROOT: "", ALPHA: ""}
    with library.beta.responses.create(
        model=model, input="Compare.", multi_agent=AGENTS, betas=[TOKEN], stream=True
    ) as stream:
        for event in stream:
            if event.type == "response.output_text.delta" and event.agent is not None:
                spoken[event.agent.agent_name] += event.delta
    assert event.type == "response.completed"
    assert spoken == {ROOT: "Take it.", ALPHA: "It takes six weeks."}


@pytest.mark.agents(66)
def test_on_a_socket_a_tool_is_answered_while_another_agent_writes(library: OpenAI, upstream: Upstream) -> None:
    paced = Paced()
    script = {
        ROOT: [spawn("alpha", "beta"), WAIT, WAIT, says("Take it.")],
        ALPHA: [PROPOSAL, says("It takes six weeks.")],
        BETA: [paced],
    }
    model = upstream.script("half of what the library shows", play(script))
    order = []
    with library.beta.responses.connect(extra_headers={"OpenAI-Beta": TOKEN}) as connection:
        connection.response.create(model=model, input="Compare.", tools=TOOLS, multi_agent=AGENTS)
        for event in connection:
            if event.type == "response.created":
                response_id = event.response.id
            elif event.type == "response.output_item.done" and event.item.type == "function_call":
                connection.response.inject(response_id=response_id, input=output(event.item.call_id))
            elif event.type == "response.inject.created":
                order.append(event.type)
            elif event.type == "response.output_item.done" and event.item.type == "message":
                assert event.agent is not None
                order.append(event.agent.agent_name)
                paced.go_on.set()
            elif event.type in ("response.completed", "response.failed", "error"):
                break
    assert event.type == "response.completed"
    assert order == ["response.inject.created", ALPHA, BETA, ROOT]
    assert final_answers(event.response) == {ALPHA: "It takes six weeks.", BETA: FIRST + SECOND, ROOT: "Take it."}
    asked = [request.body for request in upstream.calls(model) if agent_of(request.body) == ALPHA]
    assert "six weeks" in str(asked[-1]["input"])


def test_on_a_socket_an_inject_that_comes_too_late_is_given_back(library: OpenAI, upstream: Upstream) -> None:
    model = upstream.script("library too late", play({ROOT: [says("Done.")]}))
    with library.beta.responses.connect(extra_headers={"OpenAI-Beta": TOKEN}) as connection:
        connection.response.create(model=model, input="Compare.", multi_agent=AGENTS)
        ended = next(event for event in connection if event.type == "response.completed")
        connection.response.inject(response_id=ended.response.id, input=output("c_1"))
        refused = connection.recv()
    assert refused.type == "response.inject.failed"
    assert refused.error.code == "response_already_completed"
    assert [item.to_dict() for item in refused.input] == output("c_1")


def test_on_a_socket_an_answer_is_steered_and_another_one_follows(library: OpenAI, upstream: Upstream) -> None:
    paced = Paced()
    model = upstream.script("half steered by the library", paced)
    told: list[Any] = []
    with library.beta.responses.connect() as connection:
        connection.response.create(model=model, input="Where should I eat?")
        for event in connection:
            if event.type in ("response.created", "response.completed", "response.steer.accepted"):
                told.append(event)
            if event.type == "response.output_text.delta" and len(told) == 1:
                connection.response.steer(previous_response_id=told[0].response.id, input="On a Sunday.")
            elif event.type == "response.steer.accepted":
                paced.go_on.set()
            if len(told) == 5 or event.type == "error":
                break
    created, accepted, completed, successor, end = told
    assert accepted.steer.previous_response_id == created.response.id
    assert (completed.response.id, text_of(completed)) == (created.response.id, FIRST + SECOND)
    assert successor.response.previous_response_id == created.response.id
    assert end.response.id == successor.response.id
    assert "On a Sunday." in str(upstream.calls(model)[-1].body["input"][-1])
