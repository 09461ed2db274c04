"""Whatever agents and clients do, a response comes to an end, keeps the rules, and leaves nothing but what it told."""

import asyncio

import pytest
from agents.anything import Life
from harness.virtual_time import VirtualLoop
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.agents(50, 61, 82, 116, 124, 128)
@given(random=st.randoms(use_true_random=False))
def test_anything_goes(random):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(Life(random).live())
