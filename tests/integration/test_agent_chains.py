"""Trees of agents that go on: over both transports, on other connections, after a restart, on another replica."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness.client import client
from harness.engine import Answer, call, says
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration.databases import CountedGateway
from integration.trees import ALPHA, BETA, ON, ROOT, TOOL, agent_of, play

Json = dict[str, Any]


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgres)])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        url: str = request.getfixturevalue("postgres_database")
        return url
    return f"sqlite:///{tmp_path}/trees.db"


@pytest.fixture
def gateway(upstream: Upstream, tmp_path: Path, database: str) -> Iterator[CountedGateway]:
    with CountedGateway(tmp_path, upstream.url, database, {"multi_agent.message_visibility": "plain"}) as running:
        yield running


def output(call_id: str, text: str) -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def create(gateway: CountedGateway, **body: Any) -> Json:
    with client(gateway.port) as caller:
        answer = caller.create({"tools": [TOOL], **body}, BETA)
    assert answer.status == 200, answer.body
    made: Json = answer.json
    return made


def create_on(socket: WebSocket, model: str, given: Any, **body: Any) -> Json:
    socket.create(model, given, tools=[TOOL], **body)
    (*_, last) = socket.events_until_terminal()
    assert last["type"] == "response.completed", last
    made: Json = last["response"]
    return made


def text_of(response: Json) -> str:
    (text,) = [
        part["text"]
        for item in response["output"]
        if item["type"] == "message" and item["agent"] == {"agent_name": ROOT}
        for part in item["content"]
    ]
    return str(text)


@pytest.mark.agents(88, 89, 90, 91)
def test_a_tree_goes_on_wherever(gateway: CountedGateway, upstream: Upstream) -> None:
    spawn = call("spawn_agent", '{"task_name":"alpha","message":"Ask."}', "call_s")
    asks = Answer([call("get_proposal", "{}", "call_a")])
    waits = Answer([spawn, call("wait_agent", "{}", "call_w")])
    told = [says(f"answer {number}") for number in range(5)]
    script = {ROOT: [waits, *told], ALPHA: [asks, says("alpha has it"), asks], "": [says("alone")]}
    model = upstream.script("trees that go on", play(script))
    before = create(gateway, model=model, input="q0", store=True)
    first = create(gateway, model=model, input="q1", previous_response_id=before["id"], multi_agent=ON)
    assert first["status"] == "completed"
    (asked,) = [item["call_id"] for item in first["output"] if item["type"] == "function_call"]

    # Over a WebSocket, as a fork whose other branch is made after a restart.
    with WebSocket(gateway.port, headers=BETA) as socket:
        given = [output(asked, "six weeks"), {"role": "user", "content": "and in short?"}]
        second = create_on(socket, model, given, previous_response_id=first["id"])
        assert upstream_sees(upstream, model, ALPHA, "six weeks")
        assert upstream_sees(upstream, model, ROOT, "and in short?")
        # What the connection remembers is read from nowhere.
        reads = gateway.reads()
        third = create_on(socket, model, "once more", previous_response_id=second["id"], multi_agent=ON)
        assert gateway.reads() == reads
    gateway.stop()
    gateway.start("/livez")
    fork = create(gateway, model=model, input=[output(asked, "eight weeks")], previous_response_id=first["id"])
    assert fork["previous_response_id"] == first["id"]
    assert upstream_sees(upstream, model, ALPHA, "eight weeks")
    fourth = create(gateway, model=model, input="q4", previous_response_id=third["id"])
    sent = [call.body for call in upstream.calls(model) if agent_of(call.body) == ROOT][-1]
    assert {"q0", "alone", "q1", "and in short?", "once more", "q4"} <= set(texts_of(sent))
    assert "eight weeks" not in str(sent)

    with client(gateway.port) as caller:
        assert caller.get(f"/v1/responses/{second['id']}").json == second
        listed = caller.get(f"/v1/responses/{second['id']}/input_items?order=asc").json["data"]
        assert [item["type"] for item in listed] == ["function_call_output", "message"]
        refused = caller.create(
            {"model": model, "previous_response_id": fourth["id"], "multi_agent": {"enabled": False}}
        )
        assert (refused.status, refused.error["param"]) == (400, "multi_agent")
        assert caller.call("DELETE", f"/v1/responses/{third['id']}").status == 200
    assert create(gateway, model=model, input="q5", previous_response_id=fourth["id"])["status"] == "completed"


def texts_of(body: Json) -> list[str]:
    """The message texts of a request to the server."""
    return [
        part["text"]
        for item in body["input"]
        if item.get("type", "message") == "message"
        for part in (item["content"] if isinstance(item["content"], list) else [{"text": item["content"]}])
    ]


def upstream_sees(upstream: Upstream, model: str, agent: str, text: str) -> bool:
    """Whether an inference of this agent was told the text."""
    return any(text in str(seen.body["input"]) for seen in upstream.calls(model) if agent_of(seen.body) == agent)
