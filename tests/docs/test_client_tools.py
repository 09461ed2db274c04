"""The page about tools of clients names each of them as the code does."""

from docs.pages import ROOT

from gateway.protocol.client_tools import CLIENT_TOOLS, NO_PATH
from gateway.protocol.items import CLIENT_CALLS

PAGE = (ROOT / "docs/explanation/client-tools.md").read_text()
ROWS = [line for line in PAGE.splitlines() if line.startswith("| `")]


def test_every_tool_has_a_row_with_its_call_and_its_output() -> None:
    for kind, tool in CLIENT_TOOLS.items():
        (row,) = [row for row in ROWS if row.startswith(f"| `{kind}`") and f"`{tool.call}`" in row]
        assert f"`{tool.output}`" in row
        assert CLIENT_CALLS[tool.call] == tool.output


def test_arguments_that_cannot_be_read_are_told_of_for_every_tool() -> None:
    told = PAGE.partition("arguments that cannot be read |")[2]
    assert [kind for kind in CLIENT_TOOLS if f"`{kind}`" not in told] == []
    assert NO_PATH in told
