"""Trees of agents that one connection remembers."""

from engine.agents.bench import ALPHA, ROOT
from engine.agents.clients import ON, Socket
from harness.agents import PLAIN, say, spawn, wait
from msgspec import structs

from gateway.config.schema import WebSocketConfig


async def test_a_connection_remembers_its_agents() -> None:
    client = Socket({ROOT: [[spawn("alpha"), wait()], [say("two")], [say("three")]], ALPHA: [[say("found")]]})
    first = await client.create(multi_agent=ON)
    second = await client.create(previous_response_id=first["id"])
    assert client.bench.store.read == 0
    kept = client.session.latest(None)
    assert kept is not None
    stored = await client.bench.store.history("local", second["id"])
    assert stored is not None
    assert (kept.items, list(kept.tree)) == ((), list(stored.tree))
    assert client.session.bytes == kept.bytes == sum(len(agent.state) for agent in stored.tree)


async def test_what_only_the_connection_knows_becomes_the_roots() -> None:
    client = Socket({PLAIN: [[say("alone")]], ROOT: [[say("as a tree")], [say("again")]]})
    alone = await client.create(store=False, input="q1")
    tree = await client.create(previous_response_id=alone["id"], multi_agent=ON, input="q2")
    assert client.played.asked[-1].texts == ["q1", "alone", "q2"]
    kept = await client.bench.stored(tree["id"])
    assert kept is not None
    assert (kept.parent_id, [item.role for item in kept.items]) == (None, ["input", "output"])
    # Read from the database it is the same.
    await client.answer(previous_response_id=tree["id"], multi_agent=None, input="q3")
    assert client.played.asked[-1].texts == ["q1", "alone", "q2", "as a tree", "q3"]


async def test_agents_that_are_too_large_to_be_remembered_are_read() -> None:
    client = Socket({ROOT: [[say("x" * 2000)], [say("two")]]})
    small = WebSocketConfig(max_checkpoint_bytes=1000)
    client.bench.engine.reconfigure(structs.replace(client.bench.config, websocket=small))
    client.session = client.bench.engine.open_session()
    first = await client.create(multi_agent=ON)
    assert client.session.latest(None) is None
    await client.create(previous_response_id=first["id"])
    assert client.bench.store.read == 1
