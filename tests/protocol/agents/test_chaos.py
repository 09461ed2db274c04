"""Whatever agents do, and in whatever order: no deadlock, no lost mail, no call without its one output."""

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from protocol.agents.chaos import Chaos


@given(st.lists(st.integers(0, 71), max_size=400))
@settings(max_examples=settings.default.max_examples * 2)
def test_a_tree_comes_to_its_end_and_is_restored_as_it_was(script):
    Chaos(script).run(2)


@pytest.mark.parametrize("seed", range(40))
def test_it_does_after_long_scripts_too(seed):
    numbers = Random(seed)
    Chaos([numbers.randrange(72) for _ in range(700)]).run(2)
