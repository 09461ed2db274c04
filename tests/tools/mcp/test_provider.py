"""The provider: when it runs tools at all, what a request may declare, and what approvals fit."""

import subprocess
import sys

import pytest

from gateway.config.schema import McpConfig, McpServerConfig
from gateway.protocol.errors import InvalidRequest
from gateway.telemetry.metrics import Metrics
from gateway.tools.mcp import provider as module
from gateway.tools.mcp.provider import McpTools, McpUnavailable

URL = "http://127.0.0.1:1/mcp"


def test_it_runs_mcp_where_there_can_be_servers(bench):
    assert bench.provider().runs("mcp")
    assert not bench.provider().runs("web_search")
    assert not bench.provider(allow_request_servers=False).runs("mcp")
    assert bench.provider({"docs": {"url": URL}}, allow_request_servers=False).runs("mcp")


def test_without_the_extra_nothing_runs_and_configured_servers_are_refused(monkeypatch):
    monkeypatch.setattr(module, "find_spec", lambda name: None)
    assert not McpTools(McpConfig(), Metrics()).runs("mcp")
    with pytest.raises(McpUnavailable, match=r"pip install 'responses-gateway\[mcp\]'"):
        McpTools(McpConfig(servers={"docs": McpServerConfig(url=URL)}), Metrics())


def test_a_file_that_went_since_the_check_is_told():
    server = McpServerConfig(url=URL, header_files={"a": "/nowhere/at/all"})
    with pytest.raises(McpUnavailable, match=r"mcp\.servers\.docs: .*nowhere"):
        McpTools(McpConfig(servers={"docs": server}), Metrics())


def test_labels_tell_servers_apart_and_are_bounded(bench):
    provider = bench.provider(max_servers=2)
    tool = {"type": "mcp", "server_url": URL}
    with pytest.raises(InvalidRequest, match="repeats 'a'") as raised:
        provider.check([("tools[0]", {**tool, "server_label": "a"}), ("tools[4]", {**tool, "server_label": "a"})])
    assert raised.value.param == "tools[4].server_label"
    with pytest.raises(InvalidRequest, match="at most 2") as raised:
        provider.check([(f"tools[{n}]", {**tool, "server_label": f"s{n}"}) for n in range(3)])
    assert (raised.value.bound, raised.value.code) == ("mcp.max_servers", "array_above_max_length")


def test_decisions_become_calls(bench):
    asked = {"type": "mcp_approval_request", "server_label": "docs", "name": "say", "arguments": '{"a":1}'}
    items = [{**asked, "id": "mcpr_1"}, {**asked, "id": "mcpr_2"}]
    items += [{"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}]
    items += [{"type": "mcp_approval_response", "approval_request_id": "mcpr_2", "approve": False, "reason": "no"}]
    kit = bench.open(bench.provider(), {"server_url": URL}, items=items, first_new=2)
    approved, declined = kit.toolkit.decided
    assert (approved.request_id, approved.approved, approved.arguments) == ("mcpr_1", True, '{"a":1}')
    assert (approved.tool.kind, approved.tool.function["name"]) == ("mcp_call", "mcp__docs__say")
    assert (declined.request_id, declined.approved, declined.reason) == ("mcpr_2", False, "no")
    with pytest.raises(InvalidRequest, match="No approval response found"):
        bench.open(bench.provider(), {"server_url": URL}, items=items[:2])


def test_the_sdk_is_loaded_when_it_is_needed():
    script = (
        "import sys, gateway.tools.mcp.provider; print([n for n in ('mcp', 'httpx2', 'pydantic') if n in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
