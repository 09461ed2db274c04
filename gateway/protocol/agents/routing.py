"""To whom the outputs of client calls go."""

from collections.abc import Sequence

from msgspec import Struct

from gateway.protocol.agents.agent import Agent, Call
from gateway.protocol.agents.history import build_note, match_calls, read_call, read_output
from gateway.protocol.agents.mail import Item
from gateway.protocol.agents.outcomes import Rejection
from gateway.protocol.agents.roster import Roster
from gateway.protocol.codec import encode
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.history import is_answer
from gateway.protocol.items import CLIENT_OUTPUTS

_APPROVAL = "mcp_approval_response"
# How much of an id that a client made up is repeated to it.
_SHOWN = 128


class Sorted(Struct, frozen=True):
    """The input of a request.

    Attributes:
        outputs: those that answer calls of agents, by the calls' ids, in order.
        rest: everything else, in order.
    """

    outputs: dict[str, Item]
    rest: list[Item]


def sort_input(roster: Roster, items: Sequence[Item], *, complete: bool) -> Sorted:
    """Part the outputs in a request's input from the rest; an output of a call in the same input belongs to the rest.

    Args:
        roster: the agents.
        items: the input.
        complete: no call may go on waiting, besides those of interrupted agents.

    Raises:
        InvalidRequest: `invalid_tool_output` or `missing_tool_output`.
    """
    own = match_calls(items)
    answers = {at for outputs in own.values() for at in outputs}
    pending = _find_pending(roster)
    outputs: dict[str, Item] = {}
    rest: list[Item] = []
    for index, item in enumerate(items):
        call_id = read_output(item)
        if call_id is None or index in answers:
            rest.append(item)
            continue
        owner = pending.get(call_id)
        if call_id in outputs or owner is None or not is_answer(owner[1].type, str(item["type"])):
            raise _refuse_output(index, item, call_id, owner, duplicate=call_id in outputs)
        outputs[call_id] = item
    missing = [read_call(items[at]) for at, outputs in own.items() if not outputs]
    missing += [call.call_id for agent in roster.agents.values() for call in agent.client_calls]
    for call_id in missing if complete else ():
        if call_id not in outputs:
            raise InvalidRequest(
                f"No tool output found for call {str(call_id)[:_SHOWN]}; give one for every call that waits.",
                code="missing_tool_output",
                param="input",
            )
    return Sorted(outputs, rest)


def check_outputs(roster: Roster, items: Sequence[Item], response_id: str) -> Rejection | None:
    """Tell why injected outputs cannot be taken, or None.

    The checks come one after the other, each for all items.
    """
    if not items:
        return _reject("'input' must hold at least one tool output.")
    for item in items:
        if read_output(item) is None or item.get("type") not in (*CLIENT_OUTPUTS, _APPROVAL):
            return _reject(f"An item of type '{str(item.get('type'))[:64]}' is no output of a client's tool.")
    ids = [str(read_output(item)) for item in items]
    pending = _find_pending(roster)
    unknown = next((call_id for call_id in ids if call_id not in pending), None)
    answered = set() if unknown is None else _list_answered(roster) - pending.keys()
    for call_id in ids:
        if call_id in answered:
            return _reject(f"Tool call '{call_id[:_SHOWN]}' already has an output.")
        answered.add(call_id)
    if unknown is not None:
        return _reject(f"Tool call '{unknown[:_SHOWN]}' is not pending on response '{response_id}'.")
    for call_id, item in zip(ids, items, strict=True):
        if not is_answer(pending[call_id][1].type, item["type"]):
            return _reject(f"Tool call '{call_id}' is a {pending[call_id][1].type}; its output has another type.")
    return None


def take_outputs(roster: Roster, items: Sequence[Item]) -> list[str]:
    """Put outputs into the histories of those who wait for them; return these agents' paths, each once, in order."""
    pending = _find_pending(roster)
    fed: dict[str, None] = {}
    for item in items:
        call_id = str(read_output(item))
        agent, call = pending[call_id]
        late = agent.late.pop(call_id, None)
        agent.calls.pop(call_id, None)
        roster.answered.add(call_id)
        is_known = late is not None and late.shown
        roster.append(agent, [build_note(call_id, call.name or call.type, _read_text(item)) if is_known else item])
        roster.resume(agent)
        fed[agent.path] = None
    return list(fed)


def _find_pending(roster: Roster) -> dict[str, tuple[Agent, Call]]:
    """Return all client calls that may be answered, with whose they are."""
    return {
        call.call_id: (agent, call)
        for agent in roster.agents.values()
        for call in (*(late.call for late in agent.late.values()), *agent.client_calls)
    }


def _list_answered(roster: Roster) -> set[str | None]:
    """Return the ids of all calls that have an output."""
    outputs = {read_output(item) for agent in roster.agents.values() for item in agent.history}
    return outputs | roster.answered


def _read_text(item: Item) -> str:
    output = item.get("output", item)
    return output if isinstance(output, str) else encode(output).decode()


def _reject(message: str) -> Rejection:
    return Rejection("invalid_input", message)


def _refuse_output(
    index: int, item: Item, call_id: str, owner: tuple[Agent, Call] | None, *, duplicate: bool
) -> InvalidRequest:
    shown = call_id[:_SHOWN]
    if duplicate:
        message = f"Call {shown} has more than one output in this input."
    elif owner is None:
        message = f"No agent waits for an output of call {shown}; send outputs of calls that wait, each once."
    else:
        message = f"Call {shown} is a {owner[1].type}; its output cannot be a {item['type']}."
    member = "approval_request_id" if item["type"] == _APPROVAL else "call_id"
    return InvalidRequest(message, code="invalid_tool_output", param=f"input[{index}].{member}")
