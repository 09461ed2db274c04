"""What the scenarios ask for, and what answers the calls of the model: always the same, by the arguments."""

from typing import Any, Final

import msgspec

from gateway.cassette.dialogue import CLIENT_CALLS, Call

FIXTURE: Final = "get_proposal"

TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "name": FIXTURE,
    "description": "Return what is known of one proposal: weeks of work and risk.",
    "parameters": {
        "type": "object",
        "properties": {"proposal": {"type": "string", "enum": ["alpha", "beta"]}},
        "required": ["proposal"],
        "additionalProperties": False,
    },
    "strict": True,
}
_PROPOSALS: Final = {
    "alpha": {"estimated_weeks": 6, "risk": "medium"},
    "beta": {"estimated_weeks": 8, "risk": "low"},
}

COMPARE: Final = (
    "Compare the proposals alpha and beta. Spawn two subagents named alpha and beta. Each calls get_proposal once, "
    "for its own proposal, and reports weeks and risk in one sentence. Wait for both, then say in one sentence which "
    "one to choose."
)
COMPARE_WHILE_WRITING: Final = (
    "Spawn two subagents. The one named alpha calls get_proposal once, for alpha, and reports in one sentence. The one "
    "named beta calls no tool and writes at least 600 words about how to compare proposals. Wait for both, then say in "
    "one sentence what alpha found."
)
ASSESS: Final = "Call get_proposal for alpha yourself, without subagents. Then say in one sentence what it found."
NESTED: Final = (
    "Spawn a subagent named lead. It spawns a subagent of its own named alpha, which calls get_proposal for alpha and "
    "reports in one sentence. The lead waits for it and reports on. Wait for the lead, then repeat the report."
)
INTERRUPTED: Final = (
    "Spawn a subagent named beta that writes at least 600 words about comparing proposals. Interrupt it, then give it "
    "the follow-up task of calling get_proposal for beta and reporting in one sentence. Wait for it, then repeat it."
)
REMEMBER: Final = "Remember the number 29. Answer with the word noted."
RECALL: Final = "Which number did I tell you? Answer with the number alone."
LONG: Final = "Write at least 400 words about how proposals are compared."
SHORTER: Final = "Stop after three sentences and say why you do."
LAST: Final = "Name the one thing that matters most."


def answer_call(call: Call) -> dict[str, Any]:
    """Return the input item that answers a call."""
    return {"type": CLIENT_CALLS[str(call.item["type"])], "call_id": call.call_id, "output": _look_up(call.item)}


def _look_up(item: dict[str, Any]) -> str:
    if item.get("name") != FIXTURE:
        return _write({"error": f"There is no function {item.get('name')!r}."})
    try:
        arguments = msgspec.json.decode(str(item.get("arguments") or item.get("input")))
        known = _PROPOSALS.get(arguments.get("proposal"))
    except (msgspec.DecodeError, RecursionError, AttributeError, TypeError):
        return _write({"error": "The arguments are no object with the key proposal."})
    return _write(known or {"error": "There is no such proposal; there are alpha and beta."})


def _write(value: Any) -> str:
    return msgspec.json.encode(value).decode()
