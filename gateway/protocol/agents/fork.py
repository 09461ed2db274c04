"""What a new agent knows of the conversation of the one that spawned it."""

from collections.abc import Container, Sequence

from gateway.protocol.agents.history import MESSAGE, is_cut_short, is_settled, match_calls, read_call, read_output
from gateway.protocol.agents.mail import Item, MailKind


def fork_history(history: Sequence[Item], turns: int | None, unanswered: Container[str] = ()) -> list[Item]:
    """Return the part of a history that a new agent gets.

    Args:
        history: the parent's, up to before the round that spawns.
        turns: how many of the last turns; None for all. Each begins with what a user or a task says.
        unanswered: ids of calls that may still be answered, though the parent has a stand-in for their outputs.

    Returns:
        The items without reasoning, which only its author's model can use, and without calls that have no output.
    """
    taken = history[_find_start(history, turns) :] if turns != 0 else []
    matches = match_calls(taken)
    settled = {
        at
        for call, outputs in matches.items()
        if is_settled(taken, outputs) and read_call(taken[call]) not in unanswered
        for at in (call, *outputs)
    }
    return [item for position, item in enumerate(taken) if position in settled or _stands_alone(item)]


def _stands_alone(item: Item) -> bool:
    belongs = read_call(item) is not None or read_output(item) is not None
    return not (belongs or item.get("type") == "reasoning" or is_cut_short(item))


def _find_start(history: Sequence[Item], turns: int | None) -> int:
    if turns is None:
        return 0
    opens = [_opens_turn(item) for item in history]
    starts = [at for at, opening in enumerate(opens) if opening and not (at and opens[at - 1])]
    return starts[-turns] if turns <= len(starts) else 0


def _opens_turn(item: Item) -> bool:
    if item.get("type") == MESSAGE:
        return bool(item["kind"] == MailKind.NEW_TASK)
    return item.get("type") == "message" and item.get("role") == "user"
