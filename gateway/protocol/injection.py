"""What a `response.inject` must look like before anybody asks whether its response waits for it.

A malformed one is a fault of the client's program, which no answer about a response could mend: the connection ends.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from gateway.protocol import events
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.inputs import json_type
from gateway.protocol.items import CLIENT_OUTPUTS

# What the outputs of clients cannot do without, where that is not `output`.
_NEEDED: Mapping[str, tuple[str, ...]] = {
    "tool_search_output": ("call_id", "tools"),
    "apply_patch_call_output": ("call_id", "status"),
    "local_shell_call_output": ("output",),
}
_USUAL = ("call_id", "output")


class Standing(StrEnum):
    """Where the response of an inject stands."""

    UNKNOWN = "unknown"
    ALONE = "alone"
    WORKING = "working"
    ENDING = "ending"
    ENDED = "ended"


ANSWERS: Mapping[Standing, tuple[str, str] | None] = {
    Standing.UNKNOWN: ("response_not_found", "Response '{}' was not found."),
    Standing.ALONE: ("invalid_input", "Response '{}' is made by one agent, and takes no outputs while it runs."),
    Standing.WORKING: None,
    Standing.ENDING: None,
    Standing.ENDED: ("response_already_completed", "Response '{}' has already completed."),
}
"""Code and message of the refusal; None where the response itself decides, or has to be waited for."""


def check_inject(response_id: Any, given: Any) -> None:
    """Check the form of an inject.

    Args:
        response_id: its `response_id`.
        given: its `input`.

    Raises:
        InvalidRequest: `invalid_event`, naming the member at fault.
    """
    if not isinstance(response_id, str) or not response_id:
        raise _refuse("response_id", "a non-empty string", response_id)
    if not isinstance(given, list):
        raise _refuse("input", "an array", given)
    for index, item in enumerate(given):
        path = f"input[{index}]"
        if not isinstance(item, dict):
            raise _refuse(path, "an object", item)
        kind = item.get("type")
        if not isinstance(kind, str) or not kind:
            raise _refuse(f"{path}.type", "a non-empty string", kind)
        for name in _NEEDED.get(kind, _USUAL) if kind in CLIENT_OUTPUTS else ():
            value = item.get(name)
            if name == "call_id" and (not isinstance(value, str) or not value):
                raise _refuse(f"{path}.call_id", "a non-empty string", value)
            if value is None:
                raise _refuse(f"{path}.{name}", "a value", value)


def refuse_inject(response_id: str, given: Any, standing: Standing) -> events.InjectFailed | None:
    """Return what a client is told of an inject whatever it holds; None where that decides.

    Args:
        response_id: the response it was sent to.
        given: its `input`, as it was sent.
        standing: where the response stands.
    """
    answer = ANSWERS[standing]
    if answer is None:
        return None
    error = events.ControlError(code=answer[0], message=answer[1].format(response_id))
    return events.InjectFailed(response_id=response_id, input=given, error=error)


def _refuse(path: str, expected: str, value: Any) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid 'response.inject': '{path}' must be {expected}, not {json_type(value)}.",
        code="invalid_event",
        param=path,
    )
