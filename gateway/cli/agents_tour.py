"""The tour of several agents: at work at once, answered while they work, continued; and an answer that is steered."""

from pathlib import Path
from textwrap import shorten
from typing import Any

import msgspec
from rich.console import Console

from gateway.cli.stage import (
    Client,
    Commands,
    Lanes,
    Stage,
    TourFailed,
    print_title,
    text_of,
    write_curl,
)
from gateway.cli.voices import Voices
from gateway.protocol.agents import actions
from gateway.protocol.agents.paths import ROOT

_ALPHA, _BETA = f"{ROOT}/alpha", f"{ROOT}/beta"
_COLOURS = {ROOT: "white", _ALPHA: "yellow", _BETA: "cyan"}
_BETA_HEADER = "OpenAI-Beta: responses_multi_agent=v1"
_FIRST_WORDS = "Compare the proposals alpha and beta."
_NEXT_WORDS = "Let beta write the plan. No, wait: alpha it is."
_QUESTION = "Where should I eat?"
_STEER = "Only places that are open on Sundays."
_SHOWN_CHARACTERS = 72
_PIECES_BEFORE_STEER = 6
_STEERED, _SUCCESSOR = "the answer", "the next one"
_TOOL = {
    "type": "function",
    "name": "get_proposal",
    "parameters": {"type": "object", "properties": {"proposal": {"type": "string"}}, "required": ["proposal"]},
}
_PROPOSAL = '{"estimated_weeks": 6, "risk": "medium"}'
_PACE = "0.05"
_YOURS = "bold green"
_ENDS = ("response.completed", "response.incomplete", "response.failed", "error")
_SCRIPT = r'''
"/root" = ["""
@tool spawn_agent {"task_name": "alpha", "message": "Look at proposal alpha.", "fork_turns": "none"}
@tool spawn_agent {"task_name": "beta", "message": "Look at proposal beta.", "fork_turns": "none"}
@then
@tool wait_agent {}
@then
@tool wait_agent {}
@then
@tool list_agents {}
@say Alpha is quicker, beta is safer. I would take beta.
""", """
@tool followup_task {"target": "beta", "message": "Write the plan."}
@then
@tool interrupt_agent {"target": "beta"}
@then
@tool wait_agent {}
@then
@tool list_agents {}
@say Beta has put down the pen. Alpha it is.
"""]
"/root/alpha" = """
@tool get_proposal {"proposal": "alpha"}
@then
@tool send_message {"target": "/root/beta", "message": "Mine takes six weeks."}
@say Alpha takes six weeks, at medium risk.
"""
"/root/beta" = ["""
@say I have read proposal beta from its first page to its last. It keeps the old machines, moves one customer \
after the other, and can be taken back at any time. That takes eight weeks, at low risk.
""", """
@tool send_message {"target": "/root/alpha", "message": "I am to write the plan now, so keep what you have for me, \
and tell me of every customer that has to be moved before the summer begins, and of those that can wait until then."}
@say This is the plan.
"""]
'''


def build_agents_stage(folder: Path) -> Stage:
    """Return a stage whose simulator knows what each agent is to do."""
    script = folder / "agents.toml"
    script.write_text(_SCRIPT)
    # What agents write to each other is sealed unless it is asked for as text, and this is to be read.
    serve = ["--set", "multi_agent.message_visibility=plain", "--set", "websocket.steer.cut=item"]
    return Stage(folder, ["--agents", str(script), "--itl", _PACE], serve)


class AgentsTour:
    """The steps, each shown and each checked.

    Args:
        console: where to show them.
        stage: a running stage.
    """

    def __init__(self, console: Console, stage: Stage) -> None:
        self._console = console
        self._stage = stage
        name, _, value = _BETA_HEADER.partition(": ")
        self._client = Client(stage.port, {name: value})

    def run(self) -> Commands:
        """Give the whole tour and return command lines to go on with.

        Raises:
            ChildFailed: a step failed; carries the gateway's log.
        """
        with self._stage.explain_failure(self._console):
            self._stage.show(self._console)
            with self._client.open_lanes() as lanes:
                title = "Two agents at work at once; a tool is answered by response.inject while the other one writes"
                print_title(self._console, title)
                first = self._show_agents(lanes)
                print_title(self._console, "The same agents, continued over HTTP")
                second = self._show_continuation(first["id"])
                print_title(self._console, "An answer that is steered, and the one that follows by itself")
                self._show_steer(lanes)
        url = self._stage.url
        again = write_curl(url, _BETA_HEADER, input="Once more.", previous_response_id=second["id"], stream=True)
        return (
            ("go on with these agents", again),
            ("what was stored", f"curl {url}/v1/responses/{second['id']}"),
            ("what was counted", f"curl {self._stage.admin_url}/metrics"),
        )

    def _show_agents(self, lanes: Lanes) -> dict[str, Any]:
        """Have two agents work on a WebSocket, and answer what the first one calls while the second one writes."""
        request = {"model": "sim", "input": _FIRST_WORDS, "tools": [_TOOL], "multi_agent": {"enabled": True}}
        self._say(_FIRST_WORDS)
        lanes.create("agents", request)
        with Voices(self._console, _COLOURS) as voices:
            narrator = Narrator(voices)
            last = lanes.read()
            answering = _Answering(lanes, voices, last["response"]["id"]) if "response" in last else None
            while answering and last["type"] not in _ENDS:
                last = lanes.read()
                narrator.hear(last)
                answering.hear(last)
        response = _expect("completed", last)
        if answering is None or not answering.is_taken:
            raise TourFailed("what the tool returned was not taken")
        self._note(f"{narrator.changes} times another agent spoke; the response stayed open for what the tool returned")
        return response

    def _show_continuation(self, parent_id: str) -> dict[str, Any]:
        """Go on with the agents in another transport."""
        self._say(_NEXT_WORDS)
        last: dict[str, Any] = {}
        with Voices(self._console, _COLOURS) as voices:
            narrator = Narrator(voices)
            for last in self._client.stream({"model": "sim", "input": _NEXT_WORDS, "previous_response_id": parent_id}):
                narrator.hear(last)
        response = _expect("completed", last)
        if actions.INTERRUPT not in [item.get("action") for item in response["output"]]:
            raise TourFailed("nobody was interrupted: the agents are not those of the first response")
        return response

    def _show_steer(self, lanes: Lanes) -> None:
        """Say something while a model thinks, and see the answer end and another one begin."""
        self._say(_QUESTION)
        lanes.create("chat", {"model": "sim-think", "input": _QUESTION})
        with Voices(self._console, {_STEERED: "yellow", _SUCCESSOR: "cyan"}) as voices:
            first = self._follow_steered(lanes, voices)
            if first["incomplete_details"] != {"reason": "steered"}:
                raise TourFailed(f"the answer was not steered: {first['incomplete_details']}")
            voices.tell(_STEERED, "ends as incomplete, steered", "dim")
            last = lanes.read()
            voices.tell(_SUCCESSOR, "begins by itself, with what you said", "dim")
            while last["type"] not in _ENDS:
                last = lanes.read()
                if last["type"] in ("response.reasoning_text.delta", "response.output_text.delta"):
                    voices.write(_SUCCESSOR, last["delta"])
                elif last["type"] == "response.output_item.done":
                    voices.end(_SUCCESSOR)
        response = _expect("completed", last)
        if _STEER not in text_of(response) or response["previous_response_id"] != first["id"]:
            raise TourFailed("what was said meanwhile did not arrive")

    def _follow_steered(self, lanes: Lanes, voices: Voices) -> dict[str, Any]:
        response_id, heard = "", 0
        last: dict[str, Any] = {"type": ""}
        while last["type"] not in _ENDS:
            last = lanes.read()
            if last["type"] == "response.created":
                response_id = last["response"]["id"]
            elif last["type"] == "response.reasoning_text.delta":
                voices.write(_STEERED, last["delta"])
                heard += 1
                if heard == _PIECES_BEFORE_STEER:
                    lanes.send({"type": "response.steer", "previous_response_id": response_id, "input": _STEER})
            elif last["type"] == "response.steer.accepted":
                voices.tell(_STEERED, f"you, by response.steer: {_STEER}", _YOURS)
        return _expect("incomplete", last)

    def _say(self, words: str) -> None:
        self._console.print(f"  [bold]you[/]  {words}", soft_wrap=True)

    def _note(self, words: str) -> None:
        self._console.print(f"  [dim]{words}", soft_wrap=True)


class Narrator:
    """Tells what the events of a tree of agents mean.

    Args:
        voices: where to tell it.
    """

    def __init__(self, voices: Voices) -> None:
        self.changes = 0
        self._voices = voices
        self._speaker = ""

    def hear(self, event: dict[str, Any]) -> None:
        """Show an event that is of an agent and says something."""
        speaker = event.get("agent", {}).get("agent_name")
        if event["type"] == "response.output_text.delta":
            self.changes += self._speaker not in ("", speaker)
            self._speaker = speaker
            self._voices.write(speaker, event["delta"])
        elif event["type"] == "response.output_item.done":
            self._voices.end(speaker)
            if words := _describe_item(event["item"]):
                self._voices.tell(speaker, words, "dim")


class _Answering:
    """Answers the call of a tool, at a moment when another agent writes."""

    def __init__(self, lanes: Lanes, voices: Voices, response_id: str) -> None:
        self.is_taken = False
        self._lanes = lanes
        self._voices = voices
        self._inject: dict[str, Any] = {"type": "response.inject", "response_id": response_id}
        self._caller = ""
        self._call_id = ""
        self._others_have_spoken = False

    def hear(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "response.output_item.done" and event["item"]["type"] == "function_call":
            self._caller, self._call_id = event["agent"]["agent_name"], event["item"]["call_id"]
        self._others_have_spoken = self._others_have_spoken or kind == "response.output_text.delta"
        if self._call_id and self._others_have_spoken:
            output = {"type": "function_call_output", "call_id": self._call_id, "output": _PROPOSAL}
            self._lanes.send({**self._inject, "input": [output]})
            self._call_id = ""
        elif kind == "response.inject.created":
            self.is_taken = True
            self._voices.tell(self._caller, f"you, by response.inject: {_PROPOSAL}", _YOURS)


def _describe_item(item: dict[str, Any]) -> str:
    """Return what an item means, or nothing when its text was shown or nobody needs to know."""
    kind = item["type"]
    if kind == "function_call":
        return f"calls {item['name']} {item['arguments']}"
    if kind == "agent_message":
        said = "".join(part.get("text", "") for part in item["content"])
        return f"reads from {item['author']}: {shorten(said, _SHOWN_CHARACTERS, placeholder=' …')}"
    if kind == "multi_agent_call":
        return _describe_action(item["action"], msgspec.json.decode(item["arguments"] or "{}"))
    if kind == "multi_agent_call_output" and item["action"] == actions.LIST:
        agents = msgspec.json.decode(item["output"][0]["text"])["agents"]
        return "sees " + ", ".join(f"{agent['agent_name']} {_name_status(agent['agent_status'])}" for agent in agents)
    return ""


def _describe_action(action: str, given: dict[str, Any]) -> str:
    target, message = given.get("target"), given.get("message")
    words = {
        actions.SPAWN: f"starts {given.get('task_name')}: {message}",
        actions.SEND: f"writes to {target}: {message}",
        actions.FOLLOW_UP: f"gives {target} a further task: {message}",
        actions.WAIT: "waits for news",
        actions.INTERRUPT: f"stops {target}",
        actions.LIST: "looks who is there",
    }
    return words.get(action, action)


def _name_status(status: Any) -> str:
    return status if isinstance(status, str) else next(iter(status))


def _expect(status: str, event: dict[str, Any]) -> dict[str, Any]:
    """Return the response of a terminal event.

    Raises:
        TourFailed: it ended otherwise.
    """
    response: dict[str, Any] = event.get("response") or {}
    if response.get("status") != status:
        raise TourFailed(f"the response ended with {event.get('type', 'nothing')}: {response.get('error', event)}")
    return response
