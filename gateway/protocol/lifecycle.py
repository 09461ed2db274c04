"""Phases of a response and the moves between them, as one table."""

from enum import StrEnum


class Phase(StrEnum):
    """Where a response stands; the values of the last six are the API's `status`."""

    ADMITTED = "admitted"
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        """Nothing follows a terminal phase."""
        return not MOVES[self]


_ENDS = frozenset({Phase.COMPLETED, Phase.INCOMPLETE, Phase.FAILED, Phase.CANCELLED})

MOVES: dict[Phase, frozenset[Phase]] = {
    Phase.ADMITTED: frozenset({Phase.QUEUED, Phase.IN_PROGRESS}),
    Phase.QUEUED: frozenset({Phase.IN_PROGRESS, Phase.FAILED, Phase.CANCELLED}),
    Phase.IN_PROGRESS: _ENDS,
    Phase.COMPLETED: frozenset(),
    Phase.INCOMPLETE: frozenset(),
    Phase.FAILED: frozenset(),
    Phase.CANCELLED: frozenset(),
}


def move(phase: Phase, to: Phase) -> Phase:
    """Return `to` if the table allows it.

    Raises:
        RuntimeError: the move is not in the table; always a fault of the gateway, never of an upstream.
    """
    if to not in MOVES[phase]:
        raise RuntimeError(f"a response cannot go from {phase.value} to {to.value}")
    return to
