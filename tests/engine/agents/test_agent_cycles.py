"""What agents leave behind: nothing that only the garbage collector finds."""

from collections import Counter

import pytest
from engine.agents.bench import ALPHA, ROOT, TreeBench
from engine.test_cycles import Nowhere, left_behind
from harness.agents import fail, listing, say, spawn, wait

ANSWERS = {ROOT: [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[listing()], [say("found")]]}
FAILS = {ROOT: [[spawn("alpha"), wait()], [fail(500)]], ALPHA: [[say("found")]]}


@pytest.mark.parametrize("script", [ANSWERS, FAILS], ids=["answers", "fails"])
async def test_a_response_of_agents_leaves_no_cycles(script):
    bench = TreeBench(script)

    async def make():
        bench.played._numbers.clear()
        plan = await bench.plan(transport="sse")
        await bench.engine.stream(plan, Nowhere())

    assert await left_behind(make) == Counter()
