"""The table of moves; every pair of phases is tried."""

import itertools

import pytest

from gateway.protocol.lifecycle import MOVES, Phase, move
from gateway.protocol.state_diagram import draw_states

TERMINAL = {Phase.COMPLETED, Phase.INCOMPLETE, Phase.FAILED, Phase.CANCELLED}
DIAGRAM = """\
stateDiagram-v2
    [*] --> admitted
    admitted --> queued
    admitted --> in_progress
    queued --> in_progress
    queued --> failed
    queued --> cancelled
    in_progress --> completed
    in_progress --> incomplete
    in_progress --> failed
    in_progress --> cancelled
    completed --> [*]
    incomplete --> [*]
    failed --> [*]
    cancelled --> [*]"""


@pytest.mark.parametrize(("phase", "to"), list(itertools.product(Phase, Phase)))
def test_only_moves_of_the_table_are_made(phase, to):
    if to in MOVES[phase]:
        assert move(phase, to) is to
    else:
        with pytest.raises(RuntimeError, match=f"cannot go from {phase.value} to {to.value}"):
            move(phase, to)


def test_the_table_knows_every_phase_and_its_ends():
    assert set(MOVES) == set(Phase)
    assert {phase for phase in Phase if phase.is_terminal} == TERMINAL


def test_every_phase_is_reached_and_leads_to_an_end():
    reached = {Phase.ADMITTED}
    for _ in Phase:
        reached |= set().union(*(MOVES[phase] for phase in reached))
    assert reached == set(Phase)
    assert all(MOVES[phase] for phase in Phase if phase not in TERMINAL)


def test_the_diagram_shows_the_table():
    assert draw_states(MOVES, Phase.ADMITTED) == DIAGRAM
