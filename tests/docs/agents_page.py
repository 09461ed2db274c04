"""Write the tables and the picture of the page on agents: `python -m docs.agents_page` from the folder of the tests."""

from collections.abc import Iterator

from docs.pages import ROOT, begin_table, fill_tables

from gateway.protocol.agents.actions import build_tools
from gateway.protocol.agents.agent import MOVES, Phase
from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.refusals import TEXTS
from gateway.protocol.state_diagram import draw_states

PAGE = ROOT / "docs/explanation/agents.md"


def render(page: str) -> str:
    """Return the page with its tables as they must be.

    Raises:
        KeyError: it has a table that nobody knows.
    """
    return fill_tables(page, {"phases": _draw_phases, "actions": _list_actions, "refusals": _list_refusals})


def _draw_phases() -> Iterator[str]:
    yield "```mermaid"
    yield draw_states(MOVES, Phase.IDLE)
    yield "```"


def _list_actions() -> Iterator[str]:
    yield from begin_table("action", "takes", "what a model is told of it")
    for tool in build_tools(Bounds()):
        schema = tool["parameters"]
        taken = [f"`{name}`" if name in schema["required"] else f"`{name}`?" for name in schema["properties"]]
        yield f"| `{tool['name']}` | {', '.join(taken)} | {tool['description']} |"


def _list_refusals() -> Iterator[str]:
    yield "```text"
    yield from TEXTS.values()
    yield "```"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
