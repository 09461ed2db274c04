"""Several kinds of tools behind one port."""

import pytest
from harness.tools import ScriptedListing, ScriptedTools, listed, tool

from gateway.config.schema import GatewayConfig, ToolsConfig
from gateway.ports import HostedCall, ToolContext
from gateway.telemetry.metrics import Metrics
from gateway.tools.gate import Gate
from gateway.tools.registry import ToolRegistry

CONTEXT = ToolContext(
    principal="local", response_id="resp_1", include=frozenset(), items=[], first_new=0, names=frozenset()
)


class Only(ScriptedTools):
    """Runs one type of tool."""

    def __init__(self, kind, **given):
        super().__init__(**given)
        self.kind = kind
        self.checked = []

    def runs(self, kind):
        return kind == self.kind

    def check(self, declared):
        self.checked += declared

    def show(self, tool):
        return {"shown": tool["type"]}


@pytest.fixture
def kinds():
    return Only("mcp", servers=[ScriptedListing("s", listed(tool("look")))]), Only(
        "web_search", known=[tool("web_search", "", "web_search_call")]
    )


@pytest.fixture
def registry(kinds):
    return ToolRegistry(kinds, Gate(ToolsConfig(), Metrics()))


MCP, SEARCH = {"type": "mcp"}, {"type": "web_search"}


def test_each_kind_is_for_its_provider(registry, kinds):
    assert [registry.runs(kind) for kind in ("mcp", "web_search", "file_search")] == [True, True, False]
    registry.check([("tools[0]", MCP), ("tools[2]", SEARCH)])
    assert [kind.checked for kind in kinds] == [[("tools[0]", MCP)], [("tools[2]", SEARCH)]]
    registry.check([("tools[1]", SEARCH)])
    assert [len(kind.checked) for kind in kinds] == [1, 2]
    assert [registry.show(tool) for tool in (MCP, {"type": "other"})] == [{"shown": "mcp"}, {"type": "other"}]


async def test_a_response_has_one_toolkit_of_those_it_declares(registry, kinds):
    kit = registry.open([MCP, SEARCH], CONTEXT)
    assert [tool.name for tool in kit.offered] == ["web_search"]
    (listing,) = kit.listings
    assert (listing.label, (await listing.fetch({})).offered[0].name) == ("s", "look")
    for called in (tool("look"), tool("web_search", "", "web_search_call")):
        await kit.run(HostedCall(item_id="i", tool=called, arguments="{}"))
    assert [[call.tool.name for call in kind.calls] for kind in kinds] == [["look"], ["web_search"]]
    await kit.close()
    assert [kind.closed for kind in kinds] == [1, 1]
    await registry.open([SEARCH], CONTEXT).close()
    assert [kind.closed for kind in kinds] == [1, 2]


async def test_all_providers_are_closed(registry, kinds):
    await registry.close()
    assert [kind.closed for kind in kinds] == [1, 1]


async def test_bounds_can_change(registry):
    registry.reconfigure(GatewayConfig(tools=ToolsConfig(max_concurrent_materializations=1)))
    kit = registry.open([SEARCH], CONTEXT)
    assert [tool.name for tool in kit.offered] == ["web_search"]
