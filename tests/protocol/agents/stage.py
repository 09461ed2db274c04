"""A tree of agents with its rounds played by hand."""

import json
from typing import Any

from gateway.protocol.agents.actions import ACTIONS
from gateway.protocol.agents.agent import Agent, Call, Phase
from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.mail import Item, Mail
from gateway.protocol.agents.outcomes import Outcome, ResolvedWait
from gateway.protocol.agents.tree import Tree

WAIT_DONE = '{"message": "Wait completed.", "timed_out": false}'
WAIT_OVER = '{"message": "Wait timed out.", "timed_out": true}'
NOBODY = '{"message": "No other agent is active.", "timed_out": false}'
CLIENT = '{"message": "Agents are waiting for client tool outputs.", "timed_out": false}'


class Stage:
    """A tree at time 0 that a user has asked something.

    Calls are pairs of a name and arguments (a dict, or a model's string); names of no action are client calls. Their
    ids are `<last part of the path>_<number>`.
    """

    def __init__(self, *, tree: Tree | None = None, live: bool = False, **bounds: Any) -> None:
        self.tree = tree or Tree(Bounds(**bounds))
        self.tree.is_live = live
        self.now = 0.0
        self.calls = 0
        self.outcomes: list[Outcome] = []
        self.mails: list[Mail] = []
        if tree is None:
            self.tree.take_input([user("go")])

    def __getitem__(self, path: str) -> Agent:
        return self.tree.agents[path if path.startswith("/") else f"/root/{path}"]

    def enter(self, path: str) -> list[Mail]:
        """Begin an inference."""
        agent = self[path]
        assert agent in self.tree.runnable()
        mails = self.tree.enter(agent)
        self.tree.begin_inference(agent)
        return mails

    def write(self, path: str, *calls: tuple[str, Any], say: str | None = None) -> list[str]:
        """End an inference and carry out its actions; return the ids of its calls."""
        agent = self[path]
        items: list[Item] = [message(say)] if say is not None else []
        made: list[tuple[Call, str, str]] = []
        for name, given in calls:
            self.calls += 1
            call_id = f"{path.rsplit('/', 1)[-1]}_{self.calls}"
            arguments = given if isinstance(given, str) else json.dumps(given)
            is_action = name in ACTIONS
            items.append(action(call_id, name, arguments) if is_action else function(call_id, name, arguments))
            made.append((Call(call_id=call_id, kind="action" if is_action else "client"), name, arguments))
        self.tree.end_round(agent, items, [call for call, _, _ in made])
        self.outcomes = [
            self.tree.act(agent, call.call_id, name, arguments, self.now)
            for call, name, arguments in made
            if call.kind == "action"
        ]
        return [call.call_id for call, _, _ in made]

    def play(self, path: str, *calls: tuple[str, Any], say: str | None = None) -> list[str]:
        """Play a whole round; return the ids of its calls."""
        self.mails = self.enter(path)
        ids = self.write(path, *calls, say=say)
        self.tree.settle(self[path], say)
        return ids

    def ask(self, path: str, name: str, **given: Any) -> str | None:
        """Play a round of one action and return its output."""
        self.play(path, (name, given))
        return self.outcomes[0].output

    def spawn(self, *names: str, **given: Any) -> None:
        """Let the root spawn agents in one round."""
        self.play("/root", *(("spawn_agent", {"task_name": name, "message": f"do {name}", **given}) for name in names))
        assert all(outcome.spawned for outcome in self.outcomes)

    def waits(self, now: float | None = None) -> list[ResolvedWait]:
        """End the waits that are over."""
        self.now = self.now if now is None else now
        return self.tree.resolve_waits(self.now)

    def texts(self, path: str) -> list[str]:
        """Return payloads of the mail in a history."""
        return [item["payload"] for item in self[path].history if item["type"] == "agent_message"]

    def rest(self) -> None:
        """Interrupt everybody who is at work."""
        for agent in self.tree.agents.values():
            if agent.phase not in (Phase.IDLE, Phase.BLOCKED, Phase.PARKED):
                self.tree.interrupt(agent)

    def again(self, **bounds: Any) -> "Stage":
        """Return a stage with the tree that this one's snapshot gives."""
        rows = self.tree.snapshot()
        return Stage(tree=Tree.restore(rows, Bounds(**bounds)))


def describe(tree: Tree) -> Any:
    """Return all that a tree is, besides what ends with a response."""
    agents = {
        agent.path: (
            agent.number, agent.parent, agent.status, agent.phase, agent.history, agent.mailbox, agent.calls,
            agent.late, agent.wait, agent.last_task, agent.rounds, agent.empty_rounds, agent.failures,
            agent.kept.sizes,
        )
        for agent in tree.agents.values()
    }  # fmt: skip
    return list(agents), agents, tree.size


def user(text: str) -> Item:
    """Return what a user says."""
    return {"type": "message", "role": "user", "content": text}


def message(text: str) -> Item:
    """Return what an agent says."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def action(call_id: str, name: str, arguments: str = "{}") -> Item:
    """Return a call of an action."""
    return {"type": "multi_agent_call", "id": "mac_1", "call_id": call_id, "action": name, "arguments": arguments}


def function(call_id: str, name: str = "T", arguments: str = "{}") -> Item:
    """Return a call of a client's function."""
    return {"type": "function_call", "id": "fc_1", "call_id": call_id, "name": name, "arguments": arguments}


def output(call_id: str, text: Any = "done") -> Item:
    """Return the output of a client's function."""
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def error_of(text: str | None) -> str:
    """Return what an action was refused with."""
    assert text is not None
    (only,) = json.loads(text).items()
    assert only[0] == "error"
    return str(only[1])
