"""One task owns the tree and the turn, and agents work at once."""

from engine.agents.bench import ALPHA, ROOT, TreeBench
from harness.agents import say, spawn, wait


async def test_a_root_alone_answers():
    bench = TreeBench({ROOT: [[say("hi")]]})
    response = await bench.answer()
    assert [(item["type"], item["phase"], item["agent"]) for item in response["output"]] == [
        ("message", "final_answer", {"agent_name": "/root"})
    ]
    assert response["status"] == "completed"


async def test_a_child_works_and_answers():
    bench = TreeBench({ROOT: [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[say("found")]]})
    told = await bench.stream()
    assert told[-1]["type"] == "response.completed"
