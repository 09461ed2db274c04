"""What a simulated model is going to say, before it becomes bytes."""

import re
from collections.abc import Sequence

from msgspec import Struct


class Think(Struct, frozen=True, tag="think"):
    """A reasoning item."""

    text: str


class Say(Struct, frozen=True, tag="say"):
    """A message with one text part."""

    text: str


class Refuse(Struct, frozen=True, tag="refuse"):
    """A message with one refusal part."""

    text: str


class Call(Struct, frozen=True, tag="call"):
    """A function call; `text` is its arguments, JSON."""

    name: str
    text: str


Step = Think | Say | Refuse | Call


class Plan(Struct, frozen=True):
    """One response.

    Attributes:
        steps: its output items in order.
        incomplete: it ran into the token limit.
    """

    steps: Sequence[Step] = ()
    incomplete: bool = False


def split_tokens(text: str) -> list[str]:
    """Return the text cut before every gap, so that a token is a word with the space before it."""
    return re.findall(r"\s*\S+|\s+$", text)


def count_tokens(plan: Plan) -> int:
    """Return how many tokens the whole plan has."""
    return sum(len(split_tokens(step.text)) for step in plan.steps)


def cut_plan(plan: Plan, limit: int | None) -> Plan:
    """Return the plan within `limit` tokens, incomplete when something had to go."""
    if limit is None or count_tokens(plan) <= limit:
        return plan
    kept: list[Step] = []
    for step in plan.steps:
        tokens = split_tokens(step.text)[:limit]
        if not tokens:
            break
        kept.append(_reword(step, "".join(tokens)))
        limit -= len(tokens)
    return Plan(kept, incomplete=True)


def _reword(step: Step, text: str) -> Step:
    return Call(step.name, text) if isinstance(step, Call) else type(step)(text)
