"""What all responses together may have tools do at once."""

import asyncio

import pytest
from engine.doubles import LONG, settle
from harness.tools import ScriptedListing, ScriptedTools, listed, returned, tool, when

from gateway.config.schema import ToolsConfig
from gateway.ports import HostedCall
from gateway.telemetry.metrics import Metrics
from gateway.tools.gate import Gate

CALL = HostedCall(item_id="mcp_1", tool=tool("look"), arguments="{}")


def make(**bounds):
    metrics = Metrics()
    return Gate(ToolsConfig(**bounds), metrics), metrics


async def test_a_listing_that_breaks_is_a_failed_listing(caplog):
    class Broken(ScriptedListing):
        async def fetch(self, headers):
            raise RuntimeError("s3cret")

    gate, metrics = make()
    result = await gate.fetch(Broken("s", listed()), {})
    assert (result.offered, result.error) == ((), "The server's tools could not be listed.")
    assert "failed unexpectedly" in caplog.text
    assert metrics.registry.get_sample_value("gateway_tool_listings_total", {"outcome": "failed"}) == 1


async def test_more_places_let_those_in_that_wait_and_fewer_take_nothing_away():
    gate, metrics = make(max_concurrent_materializations=1)
    free = asyncio.Event()
    kit = ScriptedTools({"look": when(free, "x")})
    runs = [asyncio.create_task(gate.run(kit, CALL)) for _ in range(3)]
    await settle()
    assert (len(kit.calls), metrics.tool_load.waiting.now) == (1, 2)
    gate.reconfigure(ToolsConfig(max_concurrent_materializations=2))
    await settle()
    assert (len(kit.calls), metrics.tool_load.waiting.now) == (2, 1)
    gate.reconfigure(ToolsConfig(max_concurrent_materializations=1))
    free.set()
    await asyncio.wait_for(asyncio.gather(*runs), LONG)
    assert (len(kit.calls), metrics.tool_load.running.now, metrics.tool_load.running.high) == (3, 0, 2)


@pytest.mark.checklist(602)
async def test_listings_and_calls_share_the_places():
    gate, metrics = make(max_concurrent_materializations=1)
    may = asyncio.Event()
    listing = asyncio.create_task(gate.fetch(ScriptedListing("s", listed(), may), {}))
    await settle()
    call = asyncio.create_task(gate.run(ScriptedTools(), CALL))
    await settle()
    assert (metrics.tool_load.running.now, metrics.tool_load.waiting.now) == (1, 1)
    may.set()
    await asyncio.wait_for(asyncio.gather(listing, call), LONG)


async def test_the_time_of_a_call_begins_with_its_place():
    gate, _ = make(max_concurrent_materializations=1, call_timeout_seconds=0.05)
    free = asyncio.Event()
    kit = ScriptedTools({"look": when(free, "x")})
    first = asyncio.create_task(gate.run(kit, CALL))
    second = asyncio.create_task(gate.run(ScriptedTools(), CALL))
    assert (await asyncio.wait_for(first, LONG)).failed
    assert not (await asyncio.wait_for(second, LONG)).failed


@pytest.mark.parametrize("size", [100 << 20, (1 << 20) + 1])
async def test_an_output_is_bounded_whatever_a_tool_says_of_it(size):
    async def much(_):
        return type(returned(""))(output="x", size=size, fields={})

    gate, metrics = make()
    result = await gate.run(ScriptedTools({"look": much}), CALL)
    assert (result.failed, f"{size} bytes is above the limit" in result.output) == (True, True)
    assert metrics.registry.get_sample_value("gateway_tool_output_bytes_count") == 0
