"""Tables of moves between states as pictures, for the documentation."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import TypeVar

State = TypeVar("State", bound=StrEnum)


def draw_states(moves: Mapping[State, Collection[State]], start: State) -> str:
    """Return a table of moves as a Mermaid state diagram.

    Args:
        moves: by each state those that may follow it; one that nothing follows is an end.
        start: the first one.
    """
    lines = ["stateDiagram-v2", f"    [*] --> {start.value}"]
    for source, targets in moves.items():
        lines.extend(f"    {source.value} --> {target.value}" for target in type(start) if target in targets)
        if not targets:
            lines.append(f"    {source.value} --> [*]")
    return "\n".join(lines)
