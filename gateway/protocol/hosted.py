"""Tools that the gateway runs itself, as far as requests and items tell of them."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct

from gateway.protocol import codec
from gateway.protocol.citations import Source

HostedKind = Literal["mcp_call", "mcp_approval_request", "web_search_call"]
"""The type of the item that a call of a hosted tool becomes."""

MAX_NAME = 64
_MAX_TOLD = 2000
_NO_NAME = re.compile(r"[^A-Za-z0-9_-]")


class HostedTool(Struct, frozen=True, kw_only=True):
    """One tool the model is offered and the gateway runs.

    Attributes:
        function: the function tool for the engine: `type`, `name`, `description`, `parameters`. The name is unique
            among the tools of the request, at most 64 letters, digits, `_` and `-`.
        kind: the type of the item a call of it becomes.
        name: its own name, as the item shows it.
        label: `server_label` of its server; empty where there is none.
    """

    function: dict[str, Any]
    kind: HostedKind
    name: str
    label: str = ""


class HostedResult(Struct, frozen=True, kw_only=True):
    """How a call ended; a call that failed is a result as well.

    Attributes:
        output: what the model is told, failure included. A continuation tells it what the item holds, so for an
            `mcp_call` that should be the same.
        size: bytes of the raw output, which count as retained.
        fields: members of the finished item that only the result tells: `output`, `error`, `status`, `action`.
        failed: whether the tool failed.
        sources: what later messages of the response may cite.
    """

    output: str
    size: int
    fields: Mapping[str, Any]
    failed: bool = False
    sources: Sequence[Source] = ()


class Listed(Struct, frozen=True, kw_only=True):
    """What asking a server for its tools came to; a server that cannot be asked is told, not raised.

    Attributes:
        tools: as the `mcp_list_tools` item shows them.
        offered: what the model is offered of them.
        size: bytes of the serialized discovery, which count as retained.
        error: why there is none, for the item; None where all went well.
    """

    tools: Sequence[Mapping[str, Any]]
    offered: Sequence[HostedTool]
    size: int
    error: str | None = None


def name_function(label: str, name: str) -> str:
    """Return the function name that a server's tool has on the engine's side, the same every time.

    At most 64 characters, of those engines accept. What had to be changed for that, and what a tool of another server
    could be called as well, is told apart by a digest.
    """
    joined = f"mcp__{label}__{name}"
    plain = _NO_NAME.sub("_", joined)
    ambiguous = "__" in label or label.endswith("_") or name.startswith("_")
    if plain == joined and len(plain) <= MAX_NAME and not ambiguous:
        return plain
    told_apart = f"{label}\0{name}".encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(told_apart, digest_size=6).hexdigest()
    return f"{plain[: MAX_NAME - 13]}_{digest}"


def fail_call(tool: HostedTool, message: str) -> HostedResult:
    """Return the result of a call that the gateway itself ended, or did not run."""
    told = message[:_MAX_TOLD]
    fields: dict[str, Any] = {"status": "failed"}
    if tool.kind == "mcp_call":
        error = {"type": "mcp_tool_execution_error", "content": [{"type": "text", "text": told}]}
        fields |= {"output": None, "error": error}
    return HostedResult(output=told, size=len(told.encode("utf-8", "surrogatepass")), fields=fields, failed=True)


def read_queries(arguments: str) -> list[str]:
    """Return what a call of a web search asks for; of anything but `queries` or `query`, nothing."""
    try:
        given = codec.decode(arguments.encode("utf-8", "surrogatepass"))
    except ValueError:
        return []
    if not isinstance(given, dict):
        return []
    queries = given.get("queries", given.get("query"))
    listed = queries if isinstance(queries, list) else [queries]
    return [query for query in listed if isinstance(query, str) and query]
