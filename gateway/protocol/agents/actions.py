"""The six actions by which agents work together: as tools for a model, and what a model wrote for them."""

from typing import Any

from gateway.protocol import codec
from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.refusals import Refusal

SPAWN = "spawn_agent"
SEND = "send_message"
FOLLOW_UP = "followup_task"
WAIT = "wait_agent"
INTERRUPT = "interrupt_agent"
LIST = "list_agents"
ACTIONS: tuple[str, ...] = (SPAWN, SEND, FOLLOW_UP, WAIT, INTERRUPT, LIST)

Json = dict[str, Any]

_TARGET = {"type": "string", "description": "Name of an agent under you, or the whole path of any agent."}
_DESCRIPTIONS = {
    SPAWN: "Starts an agent under you that works on its own while you go on.",
    SEND: "Leaves a message for an agent. An idle agent reads it when it next has work.",
    FOLLOW_UP: "Gives an agent a further task. A busy one begins with it when it has ended what it does.",
    WAIT: "Pauses you until a message for you arrives, or until time is up.",
    INTERRUPT: "Stops what an agent does at the moment. It keeps what it knows and can be given a task again.",
    LIST: "Shows all agents and how they are.",
}
_PARAMETERS: dict[str, dict[str, Json]] = {
    SPAWN: {
        "task_name": {
            "type": "string",
            "pattern": "^[a-z0-9_]+$",
            "description": "Name of the agent, from which its path is made; no other agent under you has it.",
        },
        "message": {"type": "string", "description": "The task, with all that the agent needs for it."},
        "fork_turns": {
            "type": "string",
            "description": "How much of your conversation it knows: all (if left out), none, or so many last turns.",
        },
    },
    SEND: {"target": _TARGET, "message": {"type": "string", "description": "What it should know."}},
    FOLLOW_UP: {"target": _TARGET, "message": {"type": "string", "description": "The task."}},
    WAIT: {"timeout_ms": {"type": "integer", "description": "How long at most, in milliseconds."}},
    INTERRUPT: {"target": _TARGET},
    LIST: {"path_prefix": {"type": "string", "description": "Only this agent and those below it."}},
}
_OPTIONAL = frozenset({"fork_turns", "timeout_ms", "path_prefix"})
_EXPECTED = {"string": "a string", "integer": "a whole number"}


def build_tools(bounds: Bounds) -> list[Json]:
    """Return the actions as function tools in the engine's form, always in the same order."""
    return [
        {
            "type": "function",
            "name": action,
            "description": _DESCRIPTIONS[action],
            "parameters": {
                "type": "object",
                "properties": _build_properties(action, bounds),
                "required": [name for name in _PARAMETERS[action] if name not in _OPTIONAL],
                "additionalProperties": False,
            },
            "strict": False,
        }
        for action in ACTIONS
    ]


def read_arguments(action: str, arguments: str) -> Json:
    """Return the arguments of a call, those that are given and not null.

    Args:
        action: one of the six.
        arguments: the model's own string; nothing counts as no arguments.

    Raises:
        Refusal: they are no JSON object, or not what the action takes.
    """
    known = _PARAMETERS.get(action)
    if known is None:
        raise Refusal("unknown_action", action=action)
    given = _read_object(arguments)
    for name, value in given.items():
        if name not in known:
            raise Refusal("unknown_field", action=action, field=name, known=", ".join(known))
        _check_type(name, value, known[name]["type"])
    for name in known:
        if name not in _OPTIONAL and name not in given:
            raise Refusal("missing_field", action=action, field=name)
    return given


def read_fork_turns(given: str) -> int | None:
    """Return how many turns a fork takes with it: 0 for none, None for all.

    Raises:
        Refusal: it is neither of the words nor a whole number from 1 on.
    """
    if given == "all":
        return None
    if given == "none":
        return 0
    if not (given.isascii() and given.isdecimal() and len(given) < 10 and int(given) > 0):
        raise Refusal("bad_fork_turns")
    return int(given)


def _build_properties(action: str, bounds: Bounds) -> Json:
    if action != WAIT:
        return {**_PARAMETERS[action]}
    limits = {"minimum": bounds.wait_min_ms, "maximum": bounds.wait_max_ms}
    return {name: {**schema, **limits} for name, schema in _PARAMETERS[action].items()}


def _read_object(arguments: str) -> Json:
    try:
        given = codec.decode(arguments.encode("utf-8", "surrogatepass")) if arguments.strip() else {}
    except ValueError:
        raise Refusal("not_json") from None
    if not isinstance(given, dict):
        raise Refusal("not_json")
    return {name: value for name, value in given.items() if value is not None}


def _check_type(name: str, value: Any, kind: str) -> None:
    if type(value) is not (str if kind == "string" else int):
        raise Refusal("wrong_type", field=name, expected=_EXPECTED[kind])
