"""A round of an agent in the form in which the agent's history keeps it, and what was called in it."""

from collections.abc import Iterable

from msgspec import to_builtins

from gateway.protocol.agents.action_slots import CALL, ActionSlot
from gateway.protocol.agents.agent import Call
from gateway.protocol.agents.mail import Item
from gateway.protocol.call_slots import CallSlot, CustomCallSlot
from gateway.protocol.client_slots import ClientCallSlot
from gateway.protocol.hosted_history import recall_call, recall_search
from gateway.protocol.hosted_slots import ApprovalSlot, HostedSlot, WebSearchSlot
from gateway.protocol.items import Message
from gateway.protocol.slots import Slot

# What only the client is told.
_FOR_CLIENTS = ("agent", "phase")


def recall_agent_round(slots: Iterable[Slot]) -> list[Item]:
    """Return the items of a round that is at its end, in tree form: in plaintext and without agents.

    Calls of the gateway's own tools are function calls, with their outputs where there are any yet; actions carry the
    arguments as the model wrote them. What the client has not been told of, because something before it is awaited,
    is there as well.
    """
    out: list[Item] = []
    for slot in slots:
        if isinstance(slot, ActionSlot):
            out.append({**slot.skeleton(), "arguments": slot.arguments})
        elif isinstance(slot, HostedSlot):
            out += _recall_hosted(slot)
        elif not slot.hidden:
            item: Item = to_builtins(slot.final if slot.final is not None else slot.render("completed"))
            out.append({name: value for name, value in item.items() if name not in _FOR_CLIENTS})
    return out


def recall_gateway_output(slot: HostedSlot) -> list[Item]:
    """Return the output of a call of one of the gateway's own tools; none where it was not run."""
    return [] if slot.result is None else _recall_hosted(slot)[1:]


def list_calls(slots: Iterable[Slot]) -> list[Call]:
    """Return the calls of a round that is at its end, in their order; not those that nobody will answer."""
    calls = [slot for slot in slots if isinstance(slot, CallSlot) and not slot.hidden and not _is_cut(slot)]
    return [_read_call(slot) for slot in calls]


def find_answer(slots: Iterable[Slot]) -> str | None:
    """Return the text of the message of a round that the client knows as the final answer, None if there is none."""
    for slot in slots:
        if isinstance(slot.final, Message) and slot.final.phase == "final_answer":
            return "".join(part.text for part in slot.texts())
    return None


def _recall_hosted(slot: HostedSlot) -> list[Item]:
    if _is_cut(slot):
        return []
    out: list[Item] = []
    recall = recall_search if isinstance(slot, WebSearchSlot) else recall_call
    output = "" if slot.result is None else slot.result.output
    recall(out, slot.render("completed"), output, slot.tool.function["name"])
    return out if slot.result is not None else out[:1]


def _is_cut(slot: CallSlot) -> bool:
    if isinstance(slot, HostedSlot):
        return slot.result is None and not slot.awaits
    status = slot.final.get("status") if isinstance(slot.final, dict) else getattr(slot.final, "status", None)
    return status == "incomplete"


def _read_call(slot: CallSlot) -> Call:
    match slot:
        case ActionSlot():
            return Call(call_id=slot.call_id, kind="action", type=CALL, name=slot.action)
        case HostedSlot():
            return Call(call_id=slot.call_id, kind="gateway", name=slot.tool.name)
        case ApprovalSlot():
            return Call(call_id=slot.call_id, kind="client", type="mcp_approval_request", name=slot.name)
        case ClientCallSlot():
            return Call(call_id=slot.call_id, kind="client", type=slot.tool.call, name=slot.name)
        case CustomCallSlot():
            return Call(call_id=slot.call_id, kind="client", type="custom_tool_call", name=slot.name)
        case _:
            return Call(call_id=slot.call_id, kind="client", name=slot.name)
