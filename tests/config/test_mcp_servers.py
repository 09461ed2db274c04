"""MCP servers of the configuration: what is refused, what is shown, and what their headers come from."""

import pytest

from gateway.config import ConfigError, load_config
from gateway.config.changes import compare
from gateway.config.display import show_settings, show_tables
from gateway.config.mcp_servers import read_headers


def problems(toml, text: str) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        load_config(toml(text))
    return [f"{found.path}: {found.message}" for found in raised.value.problems]


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        ("", "mcp.servers.docs: needs a url or a command, and not both"),
        ('url = "http://h"\ncommand = "x"', "mcp.servers.docs: needs a url or a command, and not both"),
        ('url = "http://h"\nargs = ["x"]', "mcp.servers.docs.args: is for a server with a command"),
        ('url = "http://h"\nenv = { A = "x" }', "mcp.servers.docs.env: is for a server with a command"),
        ('command = "x"\nauthorization = "t"', "mcp.servers.docs.authorization: is for a server with a url"),
        ('url = "http://h"\nheaders = { host = "x" }', "'host' belongs to one connection and cannot be forwarded"),
        ('url = "http://h"\nheaders = { "mcp-session-id" = "x" }', "is set by the protocol itself"),
        ('url = "http://h"\nheaders = { "a b" = "x" }', "is no header name"),
        ('url = "http://h"\nheaders = { a = "\u20ac" }', "a header has a character that no header can carry"),
        ('url = "http://h"\nheaders = { Authorization = "x" }\nauthorization = "y"', "keep one of the two"),
        ('url = "http://h"\nheader_files = { a = "/nowhere/x" }', "/nowhere/x: No such file"),
        ('url = "http://h"\nca_file = "/nowhere/x"', "mcp.servers.docs.ca_file: /nowhere/x"),
        ('url = "http://u:p@h"', "holds credentials; put them into authorization_file or header_files"),
        ('url = "http://h?key=1"', "holds a query or a fragment"),
        ('url = "ftp://h"', "not a URL"),
        ('url = "http://h"\nrequire_approval = "maybe"', "expected one of always, never"),
    ],
)
def test_a_server_that_cannot_work_is_refused(toml, keys, problem):
    found = problems(toml, f"[mcp.servers.docs]\n{keys}\n")
    assert any(problem in line for line in found), found
    assert not any("\u20ac" in line or "u:p" in line for line in found)


def test_a_url_that_is_none_is_one_problem_and_its_query_is_not_shown(toml):
    with pytest.raises(ConfigError) as raised:
        load_config(toml('[mcp.servers.docs]\nurl = "https://h/mcp?apiKey=s3cret"\n'))
    (found,) = raised.value.problems
    assert found.path == "mcp.servers.docs.url"
    assert "s3cret" not in str(raised.value)


def test_labels_are_what_requests_can_write_and_variables_can_tell_apart(toml):
    found = problems(toml, '[mcp.servers."a b"]\nurl = "http://h"\n')
    assert found == ["mcp.servers.\"a b\": 'a b' cannot be a label; write up to 64 letters, digits, _ and -"]
    found = problems(toml, '[mcp.servers.a-b]\nurl = "http://h"\n[mcp.servers.a_b]\nurl = "http://h"\n')
    assert found == ["mcp.servers.a_b: environment variables cannot tell it from 'a-b'; rename one of them"]


@pytest.mark.checklist(210)
def test_no_secret_is_shown(toml):
    text = '[mcp.servers.docs]\nurl = "http://h/v1/"\nauthorization = "s3cret1"\nheaders = { x-key = "s3cret2" }\n'
    text += '[mcp.servers.tool]\ncommand = "tool"\nargs = [""]\nenv = { TOKEN = "s3cret3", TOKEN_file = "s3cret4" }\n'
    loaded = load_config(toml(text))
    shown = f"{show_tables(loaded.config)}{show_settings(loaded.config, loaded.origins)}{loaded.config}"
    assert "s3cret" not in shown
    assert shown.count("***") >= 8
    assert loaded.config.mcp.servers["docs"].url == "http://h/v1/"


def test_headers_come_from_keys_files_and_the_environment(toml, tmp_path):
    (tmp_path / "key").write_text("from a file\r\n")
    text = '[mcp.servers.docs]\nurl = "http://h"\nheaders = { X-One = "1" }\n'
    text += f'header_files = {{ X-Two = "{tmp_path / "key"}" }}\n'
    loaded = load_config(toml(text), {"GATEWAY_MCP__SERVERS__DOCS__AUTHORIZATION": "token"})
    headers = read_headers(loaded.config.mcp.servers["docs"])
    assert headers == {"x-one": "1", "x-two": "from a file", "authorization": "Bearer token"}
    (tmp_path / "key").write_text("two\nlines")
    assert "holds a line break" in problems(toml, text)[0]
    (tmp_path / "key").write_bytes(b"\xff")
    assert "mcp.servers.docs.header_files" in problems(toml, text)[0]


def test_servers_that_come_or_go_wait_for_a_restart(toml):
    before = load_config().config
    after = load_config(toml('[mcp.servers.docs]\nurl = "http://h"\n[mcp.servers.tool]\ncommand = "tool"\n')).config
    reload = compare(before, after)
    assert [(change.path, change.old, change.new) for change in reload.pending] == [
        ("mcp.servers.docs", "none", "http://h"),
        ("mcp.servers.tool", "none", "tool"),
    ]
    assert reload.config == before
    assert [change.new for change in compare(after, before).pending] == ["none", "none"]
