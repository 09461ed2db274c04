"""What a model is told of an action that could not be carried out: one table, so that it can be changed as a whole."""

import json
from typing import Any

TEXTS: dict[str, str] = {
    "unknown_action": "there is no action {action}",
    "not_json": "arguments must be one JSON object",
    "unknown_field": "{action} takes no {field}; it takes {known}",
    "missing_field": "{action} needs {field}",
    "wrong_type": "{field} must be {expected}",
    "bad_task_name": "task_name must be 1 to 64 characters of a-z, 0-9 and _",
    "duplicate_agent": "agent {path} exists already; choose another task_name or use followup_task",
    "bad_fork_turns": 'fork_turns must be "all", "none" or a whole number of turns from 1 on, such as "3"',
    "too_deep": "agents may be at most {limit} levels below /root; do this work yourself",
    "too_many_agents": "the group may have at most {limit} agents; do this work yourself or use followup_task",
    "no_capacity": "maximum concurrent subagent turns reached ({limit}); wait for one to end or do this work yourself",
    "tree_full": "the group has no room left for the history; use fork_turns none or do this work yourself",
    "unknown_agent": "there is no agent {path}; list_agents shows all agents",
    "self_message": "an agent cannot message itself",
    "self_task": "an agent cannot give itself a task",
    "root_task": "the root agent takes no tasks; use send_message",
    "mailbox_full": "the mailbox of {path} is full; try again later",
    "message_too_big": "message is longer than {limit} bytes; shorten it",
    "second_wait": "only one wait_agent can be called at a time",
    "self_interrupt": "an agent cannot interrupt itself",
    "root_interrupt": "the root agent cannot be interrupted",
    "interrupted_wait": "Agent was interrupted.",
}


class Refusal(Exception):
    """An action cannot be carried out.

    Attributes:
        text: what the model is told.
    """

    def __init__(self, reason: str, **values: object) -> None:
        super().__init__(reason)
        self.text = TEXTS[reason].format(**values)


def show_refusal(refusal: Refusal) -> str:
    """Return the output of an action that was refused."""
    return write_output({"error": refusal.text})


def write_output(value: Any) -> str:
    """Return what an action reports, as JSON."""
    return json.dumps(value, ensure_ascii=False)
