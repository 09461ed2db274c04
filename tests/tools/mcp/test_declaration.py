"""Declarations of MCP servers: each fault names its parameter, and nothing secret is shown again."""

import pytest

from gateway.config.schema import McpConfig, McpServerConfig
from gateway.protocol.errors import InvalidRequest
from gateway.tools.mcp.declaration import read_declaration, show_declaration

SERVERS = {
    "docs": McpServerConfig(url="http://h/mcp", require_approval="never", description="Our docs."),
    "tool": McpServerConfig(command="tool"),
}
CONFIG = McpConfig(servers=SERVERS, allow_hosts=("mcp.example.com", "10.0.0.1"))
URL = "https://mcp.example.com/mcp?token=s3cret"


def read(config: McpConfig = CONFIG, **tool):
    return read_declaration({"type": "mcp", "server_label": "own", **tool}, "tools[3]", config)


def refusal(config: McpConfig = CONFIG, **tool) -> tuple[str, str]:
    with pytest.raises(InvalidRequest) as raised:
        read(config, **tool)
    assert raised.value.status == 400
    assert "s3cret" not in raised.value.message
    return raised.value.param, raised.value.message


@pytest.mark.checklist(204, 206)
@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"connector_id": "connector_dropbox"}, "connector_id"),
        ({"server_label": None}, "server_label"),
        ({"server_label": ""}, "server_label"),
        ({"server_label": "a b"}, "server_label"),
        ({"server_label": "a" * 65}, "server_label"),
        ({"server_label": 5}, "server_label"),
        ({}, "server_url"),
        ({"server_url": 5}, "server_url"),
        ({"server_url": "ftp://mcp.example.com"}, "server_url"),
        ({"server_url": "https://"}, "server_url"),
        ({"server_url": "https://u:s3cret@mcp.example.com"}, "server_url"),
        ({"server_url": "https://mcp.example.com/#s3cret"}, "server_url"),
        ({"server_url": "https://mcp.example.com:99999"}, "server_url"),
        ({"server_url": "https://[::1"}, "server_url"),
        ({"server_url": "https://mcp.example.com/\n"}, "server_url"),
        ({"server_url": "https://mcp.example.com/" + "a" * 2048}, "server_url"),
        ({"server_url": "https://other.example.com"}, "server_url"),
        ({"server_url": "https://10.0.0.1/mcp"}, "server_url"),
        ({"server_url": URL, "headers": []}, "headers"),
        ({"server_url": URL, "headers": {"a b": "x"}}, "headers"),
        ({"server_url": URL, "headers": {"Host": "x"}}, "headers"),
        ({"server_url": URL, "headers": {"Mcp-Session-Id": "x"}}, "headers"),
        ({"server_url": URL, "headers": {"a": "x", "A": "x"}}, "headers"),
        ({"server_url": URL, "headers": {"a": "s3cret\r\nx: y"}}, "headers"),
        ({"server_url": URL, "headers": {"a": 5}}, "headers"),
        ({"server_url": URL, "headers": {"a": "x" * 8193}}, "headers"),
        ({"server_url": URL, "headers": {str(number): "x" for number in range(33)}}, "headers"),
        ({"server_url": URL, "authorization": 5}, "authorization"),
        ({"server_url": URL, "authorization": "s3cret\n"}, "authorization"),
        ({"server_url": URL, "authorization": "s3cret", "headers": {"Authorization": "s3cret"}}, "authorization"),
        ({"server_label": "tool", "authorization": "s3cret"}, "authorization"),
        ({"server_label": "tool", "headers": {"a": "s3cret"}}, "headers"),
        ({"server_url": URL, "allowed_tools": "all"}, "allowed_tools"),
        ({"server_url": URL, "allowed_tools": [5]}, "allowed_tools"),
        ({"server_url": URL, "allowed_tools": ["a"] * 1025}, "allowed_tools"),
        ({"server_url": URL, "allowed_tools": {"tool_names": "a"}}, "allowed_tools.tool_names"),
        ({"server_url": URL, "allowed_tools": {"read_only": "yes"}}, "allowed_tools.read_only"),
        ({"server_url": URL, "require_approval": "maybe"}, "require_approval"),
        ({"server_url": URL, "require_approval": ["never"]}, "require_approval"),
        ({"server_url": URL, "require_approval": {"sometimes": {}}}, "require_approval"),
        ({"server_url": URL, "require_approval": {"never": []}}, "require_approval.never"),
        (
            {"server_url": URL, "require_approval": {"always": {"tool_names": [None]}}},
            "require_approval.always.tool_names",
        ),
        ({"server_url": URL, "server_description": {}}, "server_description"),
    ],
)
def test_a_fault_names_its_parameter(tool, param):
    assert refusal(**tool)[0] == f"tools[3].{param}"


def test_only_configured_servers_where_the_operator_says_so():
    config = McpConfig(servers=SERVERS, allow_request_servers=False)
    assert "servers of its configuration only" in refusal(config, server_url="https://example.com")[1]
    assert read(config, server_label="docs").url is None


@pytest.mark.checklist(209)
@pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "[::1]", "[::ffff:10.0.0.1]"])
def test_private_addresses_are_refused_unless_the_operator_allows_them(host):
    assert "private or local" in refusal(McpConfig(), server_url=f"http://{host}/mcp")[1]
    allowed = McpConfig(allow_private_addresses=True)
    assert read(allowed, server_url=f"http://{host}/mcp").url == f"http://{host}/mcp"


def test_a_label_of_the_configuration_means_its_server():
    docs = read(server_label="docs")
    assert (docs.url, docs.description, docs.default) == (None, "Our docs.", False)
    own = read(server_label="docs", server_url=URL, server_description="Mine.")
    assert (own.url, own.description, own.default) == (URL, "Mine.", True)
    assert read(server_label="docs", require_approval="always").default


def test_credentials_become_headers():
    read_ = read(server_url=URL, authorization="s3cret", headers={"X-A": "1"})
    assert read_.headers == {"x-a": "1", "authorization": "Bearer s3cret"}
    assert read(server_url=URL, authorization="Bearer s3cret").headers == {"authorization": "Bearer s3cret"}
    assert read(server_url=URL, headers={"Authorization": "Basic eA=="}).headers == {"authorization": "Basic eA=="}


@pytest.mark.checklist(205)
@pytest.mark.parametrize(
    ("require", "asked"),
    [
        (None, {"write": True, "read": True}),
        ("always", {"write": True, "read": True}),
        ("never", {"write": False, "read": False}),
        ({}, {"write": True, "read": True}),
        ({"never": {"tool_names": ["read"]}}, {"write": True, "read": False}),
        ({"never": {"read_only": True}}, {"write": True, "read": False}),
        ({"never": {}}, {"write": False, "read": False}),
        ({"always": {"tool_names": ["write"]}, "never": {}}, {"write": True, "read": False}),
        ({"always": {"tool_names": ["read"]}, "never": {"tool_names": ["read"]}}, {"write": True, "read": True}),
    ],
)
def test_approval_is_asked_for_as_declared(require, asked):
    declaration = read(server_url=URL, require_approval=require)
    assert {name: declaration.asks(name, read_only=name == "read") for name in asked} == asked


@pytest.mark.checklist(204)
@pytest.mark.parametrize(
    ("allowed", "taken"),
    [
        (None, {"write", "read"}),
        ([], set()),
        (["read"], {"read"}),
        ({"tool_names": ["write"]}, {"write"}),
        ({"read_only": True}, {"read"}),
        ({"tool_names": ["write"], "read_only": True}, set()),
        ({}, {"write", "read"}),
    ],
)
def test_tools_are_allowed_as_declared(allowed, taken):
    which = read(server_url=URL, allowed_tools=allowed).allowed
    assert {name for name in ("write", "read") if which.takes(name, read_only=name == "read")} == taken


@pytest.mark.checklist(210)
@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (URL, "https://mcp.example.com/<redacted>"),
        ("https://mcp.example.com", "https://mcp.example.com"),
        ("https://mcp.example.com/", "https://mcp.example.com"),
        ("http://h:8000/s3cret", "http://h:8000/<redacted>"),
        ("http://h/?s3cret", "http://h/<redacted>"),
    ],
)
def test_what_is_shown_holds_no_secret(url, shown):
    tool = {"type": "mcp", "server_label": "own", "server_url": url}
    echo = show_declaration({**tool, "authorization": "s3cret", "headers": {"a": "s3cret"}})
    assert echo == {
        "type": "mcp",
        "server_label": "own",
        "server_url": shown,
        "headers": None,
        "allowed_tools": None,
        "require_approval": "always",
        "server_description": None,
    }
