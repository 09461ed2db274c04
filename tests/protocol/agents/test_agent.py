import pytest

from gateway.protocol.agents.agent import MOVES, Agent, Phase

FORBIDDEN = [(one, other) for one in Phase for other in Phase if one is not other and other not in MOVES[one]]


@pytest.mark.parametrize(("one", "other"), FORBIDDEN)
def test_a_move_that_is_not_in_the_table_is_a_fault(one, other):
    agent = Agent(number=0, path="/root", parent=None, phase=one)
    with pytest.raises(RuntimeError, match=f"/root cannot go from {one.value} to {other.value}"):
        agent.move(other)
    assert agent.phase is one


def test_the_moves_of_the_table_are_made():
    for one, others in MOVES.items():
        for other in {one, *others}:
            agent = Agent(number=0, path="/root", parent=None, phase=one)
            agent.move(other)
            assert agent.phase is other
