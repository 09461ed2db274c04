"""Have a real inference server play the agents of one response, and compare all that is known of it.

`PYTHONPATH=tests python -m conformance.real_agents --upstream URL --model NAME` asks a gateway for each API of the
server over JSON, an event stream and a WebSocket. The model has to start an agent that calls the client's tool
`get_weather`. Between gateway and inference server every request and answer is recorded, so what each agent was asked,
and what it was billed for, is not taken from the gateway.
"""

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Any

from conformance.real_rounds import APIS, WAYS, Player, Recorder, Round, build_gateway, of_type, take, window
from conformance.verdict import beta_schema
from harness.agent_rules import check_run
from harness.client import client, create
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration.trees import BETA, MARKER, ON, ROOT
from integration.turns import final
from property.trees import tree_faults

Json = dict[str, Any]
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "Return the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
SETTINGS = {"security.seal_keys": "A" * 43 + "="}
ENDED = re.compile(r"response\.(completed|incomplete|failed)|error")


class AgentPlayer(Player):
    """Asks one gateway in one way for responses of several agents.

    Attributes:
        injects: whether outputs of calls are injected while the response runs; only a WebSocket can.
        injected: what was injected so far.
    """

    injects = False
    injected: Sequence[Json] = ()

    def _ask(self, body: Json) -> tuple[Json, list[Json]]:
        body |= {"tools": [TOOL], "multi_agent": ON}
        if self.way == "websocket":
            return self._converse(body)
        answer = create(self._gateway.port, {**body, "stream": self.way == "sse"}, BETA)
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {answer.body!r}")
        if self.way == "json":
            self.faults += beta_schema().check_response(answer.json)
            return answer.json, []
        self.faults += [*tree_faults(answer.events), *check_run(answer.events)]
        return answer.final, answer.events

    def _converse(self, body: Json) -> tuple[Json, list[Json]]:
        events: list[Json] = []
        self.injected = []
        with WebSocket(self._gateway.port, headers=BETA, timeout=120) as socket:
            socket.create(body.pop("model"), body.pop("input"), **body)
            while not (events and ENDED.fullmatch(events[-1]["type"])):
                events.append(event := socket.next_event())
                if self.injects and is_call(event):
                    given = {"response_id": events[0]["response"]["id"], "input": [output_of(event["item"])]}
                    self.injected.append(given)
                    socket.send({"type": "response.inject", **given})
        if "response" not in events[-1]:
            raise SystemExit(str(events[-1]))
        self.faults += [*tree_faults(events), *check_run(events, self.injected)]
        return final(events), events

    def play_steered(self, given: str, more: str) -> tuple[Json, Json, list[Round]]:
        """Steer a response at its first words; return it, the one that follows, and the rounds of both.

        Raises:
            LookupError: none follows.
        """
        before = len(self._recorder.rounds)
        ended: list[Sequence[Json]] = []
        with WebSocket(self._gateway.port, timeout=120) as socket:
            socket.send({"type": "response.create", "input": given, **self._common})
            events, acknowledged = [socket.next_event()], []
            while len(ended) < 2:
                event = socket.next_event()
                if event["type"].startswith("response.steer."):
                    acknowledged.append(event["type"])
                    if event["type"].endswith("failed"):
                        raise LookupError(f"not steered: {event['error']}")
                    continue
                events.append(event)
                if event["type"].endswith(".delta") and not ended and not acknowledged:
                    target = events[0]["response"]["id"]
                    socket.send({"type": "response.steer", "previous_response_id": target, "input": more})
                    acknowledged.append("sent")
                if ENDED.fullmatch(event["type"]):
                    ended.append(events)
                    events = []
        self.expect(acknowledged == ["sent", "response.steer.accepted"], f"told {acknowledged}")
        first, second = (final(events) for events in ended)
        with client(self._gateway.port) as caller:
            for response in (first, second):
                self.expect(caller.get(f"/v1/responses/{response['id']}").json == response, "GET tells another")
        return first, second, self._recorder.rounds[before:]


def is_call(event: Json) -> bool:
    """Whether an event tells the client that its tool is called."""
    return event["type"] == "response.output_item.done" and event["item"]["type"] == "function_call"


def output_of(call: Json) -> Json:
    """What the client's tool returns."""
    return {"type": "function_call_output", "call_id": call["call_id"], "output": '{"sky": "marker-42"}'}


def agent_of(asked: Json) -> str:
    """Return whose inference a request to the server is, in either API."""
    found = MARKER.search(asked.get("instructions") or str(asked.get("messages", [""])[0]))
    return found[1] if found else ""


def last_shown(rounds: Sequence[Round], agent: str) -> list[Json]:
    """Return the window of an agent's last inference."""
    return next((window(one.asked) for one in reversed(rounds) if agent_of(one.asked) == agent), [])


def first_shown(rounds: Sequence[Round], agent: str) -> list[Json]:
    """Return the window of an agent's first inference."""
    return last_shown(list(reversed(rounds)), agent)


def answers(response: Json) -> dict[str, str]:
    """Return what each agent that came to its end said last."""
    return {
        item["agent"]["agent_name"]: "".join(part["text"] for part in item["content"])
        for item in response["output"]
        if item["type"] == "message" and item["phase"] == "final_answer"
    }


def expect_answers(player: Player, response: Json, agents: set[str]) -> None:
    """Expect an answer of each of these agents, and of no other."""
    said = answers(response)
    player.expect(said.keys() == agents, f"answers of {sorted(said)}")


def expect_grown(player: Player, before: Sequence[Round], after: Sequence[Round], agent: str) -> None:
    """Expect that what an agent was shown is still shown to it, before all that is new."""
    shown = last_shown(before, agent)
    again = first_shown(after, agent)
    player.expect(bool(shown) and again[: len(shown)] == shown, f"the continuation shows {agent} another history")


def delegate(player: AgentPlayer, prompt: str) -> Any:
    """An agent is started and calls the client's tool; the next response has the output, and one more goes on.

    On a WebSocket the first would wait for an inject, so that one is asked for as events.
    """
    way, player.way = player.way, "sse" if player.way == "websocket" else player.way
    first, asked = player.play(prompt)
    player.way = way
    call = take(first, "function_call")
    child = call["agent"]["agent_name"]
    player.expect(call["name"] == TOOL["name"] and child != ROOT, f"call {call}")
    expect_answers(player, first, set())
    second, more = player.play([output_of(call)], previous_response_id=first["id"])
    expect_answers(player, second, {ROOT, child})
    for agent in (ROOT, child):
        expect_grown(player, asked, more, agent)
    player.expect("marker-42" in str(last_shown(more, child)), f"{child} is not told the output")
    player.expect("marker-42" not in str(last_shown(more, ROOT)), "the root is told the output")
    third, last = player.play("And now?", previous_response_id=second["id"])
    expect_answers(player, third, {ROOT})
    expect_grown(player, more, last, ROOT)
    return call["name"], call["arguments"], child, answers(second).get(child)


def inject(player: AgentPlayer, prompt: str) -> Any:
    """The same with the output injected while the first agent waits: one response."""
    player.injects = True
    first, asked = player.play(prompt)
    player.expect(len(player.injected) == 1, f"{len(player.injected)} injected")
    call = take(first, "function_call")
    child = call["agent"]["agent_name"]
    expect_answers(player, first, {ROOT, child})
    player.expect("marker-42" in str(last_shown(asked, child)), f"{child} is not told the output")
    second, more = player.play("And now?", previous_response_id=first["id"])
    expect_answers(player, second, {ROOT})
    expect_grown(player, asked, more, ROOT)
    return call["name"], call["arguments"], child, answers(first).get(child)


def steer(player: AgentPlayer, prompt: str) -> Any:
    """A response without agents is steered while the model writes: one more follows it, which has been told."""
    steered, following, asked = player.play_steered(prompt, "And now?")
    player.expect(following["previous_response_id"] == steered["id"], "it follows another response")
    first, second = (window(one.asked) for one in asked)
    player.expect(second[: len(first)] == first, "the response that follows shows the model another history")
    player.expect(len(second) > len(first) + 1, "what the model had written is not shown to it")
    player.expect("And now?" in str(second[-1]), "the model is not told")
    return "text of either", *(bool(of_type(response, "message")) for response in (steered, following))


PLAYED: tuple[tuple[str, Callable[[AgentPlayer, str], Any]], ...] = (
    *product(WAYS, (delegate,)),
    ("websocket", inject),
    ("websocket", steer),
)


def play_all(arguments: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of every scenario, in every way, with its faults."""
    common = {"model": arguments.model, **json.loads(arguments.fields)}
    recorder, told = Recorder(arguments.upstream), dict[str, Any]()
    with Upstream() as between:
        between.otherwise(recorder.forward)
        between.route("/v1/chat/completions", recorder.forward)
        for api in APIS:
            with build_gateway(api, between.url, arguments.database, SETTINGS) as gateway:
                for way, scenario in PLAYED:
                    player = AgentPlayer(gateway, recorder, way, common)
                    prompt = arguments.long_prompt if scenario is steer else arguments.prompt
                    try:
                        said = scenario(player, prompt)
                        first = told.setdefault(prompt, said)
                        player.expect(said == first, f"other calls or answers: {said}, not {first}")
                    except LookupError as missing:
                        player.faults.append(str(missing))
                    yield f"{api:17}{way:10}{scenario.__name__:10}", player.faults


def main(given: Sequence[str] | None = None) -> int:
    """Print a line for each scenario; return how many do not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upstream", required=True, help="base URL of the inference server, without /v1")
    parser.add_argument("--model", required=True)
    parser.add_argument(
        "--prompt",
        default="Delegate this to one agent and wait for it: it is to call get_weather for Paris. Then tell me.",
    )
    parser.add_argument(
        "--long-prompt", default="Count from 1 to 100, a number on each line.", help="what takes long enough to steer"
    )
    parser.add_argument("--fields", default="{}", help="further fields of each request, as a JSON object")
    parser.add_argument("--database", help="URL of a database; without it SQLite files that are removed again")
    failed = 0
    for name, faults in play_all(parser.parse_args(given)):
        print(name, "; ".join(faults) or "ok", flush=True)
        failed += bool(faults)
    return failed


if __name__ == "__main__":
    sys.exit(bool(main()))
