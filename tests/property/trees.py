"""The client's view of a response of several agents, and what holds of every such stream."""

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from conformance.rules import Data, Found, Judge, check_events
from conformance.verdict import beta_schema
from conformance.wire import WireEvent
from property.engine import AMPLE, CARRIED, Client, Json, counting_mint

from gateway.protocol.agents.actions import ACTIONS
from gateway.protocol.agents.mail import Mail, MailKind
from gateway.protocol.agents.turn import TreeTurn
from gateway.protocol.carriage import Carriage
from gateway.protocol.client_tools import CLIENT_TOOLS
from gateway.protocol.ledger import charge
from gateway.protocol.limits import Limits
from gateway.protocol.response import Response

ROOT, ALPHA, BETA = "/root", "/root/alpha", "/root/beta"
TOKEN = re.compile(r"sealed\((\d+)\)")


def seal(text: str) -> str:
    """A token that tells the length of what it hides, and is longer than that."""
    return f"sealed({len(text)})" + "." * len(text)


def make_tree(max_retained_bytes: int = AMPLE, *, seal: Callable[[str], str] | None = seal) -> TreeTurn:
    """A turn of a tree, whose request declares what `make_turn` does."""
    mint = counting_mint()
    carriage = Carriage()
    for tool in [{"type": "custom", "name": CARRIED}, *({"type": kind} for kind in CLIENT_TOOLS)]:
        carriage.declare(tool)
    response = Response(id=mint("resp"), created_at=1_790_000_000, status="in_progress", model="m")
    turn = TreeTurn(response, Limits(max_retained_bytes=max_retained_bytes), mint, carriage=carriage, seal=seal)
    turn.host_actions(ACTIONS)
    return turn


def tree_client(max_retained_bytes: int = AMPLE, **options: Any) -> Client:
    """Listens to a new turn of a tree."""
    return Client(make_tree(max_retained_bytes, **options))


def mail(author: str, recipient: str, payload: str = "weigh it", kind: str = "NEW_TASK") -> Mail:
    return Mail(kind=MailKind(kind), author=author, recipient=recipient, payload=payload)


def action(name: str, call_id: str, arguments: str) -> Json:
    """An engine's call of an action."""
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": arguments}


@dataclass
class TreeJudge(Judge):
    """Reads a stream in which any number of items is open, and those never done are in no output."""

    max_open_items: int = 1 << 20
    error_terminal: bool = False

    def _read_terminal(self, type_: str, data: Data) -> Found:
        self.items = [item for item in self.items if item.done is not None]
        return super()._read_terminal(type_, data)

    def _check_incomplete(self, type_: str, output: list[Data]) -> Found:
        """Each agent may be cut off."""
        return iter(())


def tree_faults(told: list[Json], *, whole: bool = True) -> list[str]:
    """What the events of a response of a tree break.

    Args:
        told: all events, the last one the terminal event.
        whole: the response neither failed nor was any agent interrupted, so that nothing is missing.
    """
    events = [WireEvent(number, event) for number, event in enumerate(told)]
    faults = [str(violation) for violation in check_events(events, TreeJudge())]
    faults += [f"{event['type']}: {fault}" for event in told for fault in beta_schema().check_event(event)]
    faults += [f"{event['type']}: agent" for event in told if ("agent" in event) != ("output_index" in event)]
    output = told[-1]["response"]["output"]
    faults += [f"{item['id']}: agent" for item in output if "agent" not in item]
    owners = {event["output_index"]: event["item"]["agent"] for event in told if event["type"].endswith("item.added")}
    faults += [f"{e['type']}: another's agent" for e in told if e.get("agent") != owners.get(e.get("output_index"))]
    faults += [f"{item['id']}: phase" for item in output if ("phase" in item) != (item["type"] == "message")]
    added = [event["item"] for event in told if event["type"].endswith("item.added")]
    faults += [f"{item['id']}: phase on added" for item in added if "phase" in item]
    calls, answers = (
        Counter((i["call_id"], i["action"], i["agent"]["agent_name"]) for i in output if i["type"] == kind)
        for kind in ("multi_agent_call", "multi_agent_call_output")
    )
    if calls != answers if whole else answers - calls:
        faults.append(f"outputs {answers} of calls {calls}")
    return faults


def retained(output: list[Json]) -> int:
    """What output costs, but for arguments kept beside those shown; every message as if it were an answer."""
    commented = sum(len("final_answer") - len("commentary") for item in output if item.get("phase") == "commentary")
    return commented + sum(charge(item) for item in output)
