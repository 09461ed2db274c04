"""Write the tables of the WebSocket page: `python -m docs.websocket_page` from the folder of the tests.

The words around the tables are written by hand; a table stands between two comments that name it.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from docs.pages import ROOT, begin_table, fill_tables

from gateway.config import load_config
from gateway.config.render import written_form
from gateway.config.tree import Leaf, Node, format_path, gateway_tree, walk
from gateway.protocol.errors import InvalidRequest, RequestTooLarge
from gateway.telemetry import names
from gateway.telemetry.names import Metric
from gateway.transport.openapi.failures import ANYWHERE, CREATE, FRAMES, Failure

PAGE = ROOT / "docs/reference/websocket.md"
SECTION = "websocket"

# Of any text and any size: on a WebSocket they are about a frame, before it has a lane.
_OF_FRAMES = (
    Failure("invalid_json", InvalidRequest.status, InvalidRequest.type, "a frame is not JSON, or is nested too deeply"),
    Failure(
        RequestTooLarge.code, RequestTooLarge.status, RequestTooLarge.type, "a message is too large; Close 1009 follows"
    ),
)


def render(page: str) -> str:
    """Return the page with its tables as they must be.

    Raises:
        KeyError: it has a table that nobody knows.
    """
    tables = {"limits": _list_limits, "refusals": _list_refusals, "failures": _list_failures, "metrics": _list_metrics}
    return fill_tables(page, tables)


def _list_limits() -> Iterator[str]:
    yield from begin_table("key", "default", "what it bounds")
    for path, node, value in walk(gateway_tree(), load_config(None, {}).config):
        if path[0] == SECTION:
            key, words = format_path(path), _describe(node)
            yield f"| [`{key}`](configuration.md#{key.replace('.', '')}) | {_show(node, value)} | {words} |"


def _list_refusals() -> Iterator[str]:
    return _list_errors((*_OF_FRAMES, *FRAMES))


def _list_failures() -> Iterator[str]:
    # What frames tell anyway; background responses, of which a further kind of 429 tells, are none of a WebSocket.
    frames = {failure.code for failure in (*_OF_FRAMES, *FRAMES)}
    (internal,) = [failure for failure in ANYWHERE if failure.code == "server_error"]
    return _list_errors(failure for failure in (*CREATE, internal) if failure.code not in frames)


def _list_errors(failures: Iterable[Failure]) -> Iterator[str]:
    yield from begin_table("code", "status", "when")
    for failure in sorted(dict.fromkeys(failures), key=lambda failure: failure.status):
        yield f"| `{failure.code}` | {failure.status} | {failure.when} |"


def _list_metrics() -> Iterator[str]:
    yield from begin_table("name", "type", "labels", "meaning")
    for metric in vars(names).values():
        if isinstance(metric, Metric) and SECTION in metric.name:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            yield f"| `{metric.name}` | {metric.kind} | {labels} | {metric.help} |"


def _describe(node: Node) -> str:
    assert isinstance(node, Leaf)
    return node.description if not node.choices else f"{node.description} `{'` or `'.join(node.choices)}`."


def _show(node: Node, value: Any) -> str:
    shown = written_form(node, value)
    return str(shown).lower() if isinstance(shown, bool) else str(shown)


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text()))
