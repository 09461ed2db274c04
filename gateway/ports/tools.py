"""Tools that the gateway runs itself: what a request declares, what the model is offered, what a call becomes.

A provider knows some declared types. For one response it opens a toolkit; the engine tells the client of listings and
calls as items, asks the toolkit to fetch and run them, and closes it when the response ends.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

from msgspec import Struct

HostedKind = Literal["mcp_call", "mcp_approval_request", "web_search_call"]
"""The type of the item that a call of a hosted tool becomes."""


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


class HostedCall(Struct, frozen=True, kw_only=True):
    """One call to be run.

    Attributes:
        item_id: id of the item that tells of it.
        tool: what is called.
        arguments: the arguments as the model wrote them, JSON or not.
        headers: trace context to hand on.
    """

    item_id: str
    tool: HostedTool
    arguments: str
    headers: Mapping[str, str] = {}


class HostedResult(Struct, frozen=True, kw_only=True):
    """How a call ended; a call that failed is a result as well.

    Attributes:
        output: what the model is told, failure included.
        size: bytes of the raw output, which count as retained.
        fields: members of the finished item that only the result tells: `output`, `error`, `status`, `action`.
        failed: whether the tool failed.
        annotations: sources that the model's next message may cite, as the API's annotation objects.
    """

    output: str
    size: int
    fields: Mapping[str, Any]
    failed: bool = False
    annotations: Sequence[Mapping[str, Any]] = ()


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


class Listing(Protocol):
    """One server whose tools are not known yet."""

    @property
    def label(self) -> str:
        """Its `server_label`."""
        ...

    async def fetch(self) -> Listed:
        """Ask the server. Cancelling the caller ends it at once."""
        ...


class ApprovedCall(Struct, frozen=True, kw_only=True):
    """A call the client has decided about, to be settled before the model is asked again.

    Attributes:
        request_id: id of the `mcp_approval_request`.
        tool: what is to be called.
        arguments: with what.
        approved: whether it may run; if not, the model is told so.
        reason: the client's word about it, or None.
    """

    request_id: str
    tool: HostedTool
    arguments: str
    approved: bool
    reason: str | None = None


class ToolContext(Struct, frozen=True, kw_only=True):
    """What a toolkit may know of its response.

    Attributes:
        principal: who asks.
        response_id: for what.
        include: what the client wants to see besides.
        items: the effective input, oldest first, in the client's form.
        names: names of function tools that the engine is offered besides, which no hosted tool may take.
    """

    principal: str
    response_id: str
    include: frozenset[str]
    items: Sequence[Mapping[str, Any]]
    names: frozenset[str]


class Toolkit(Protocol):
    """The gateway's tools of one response."""

    @property
    def offered(self) -> Sequence[HostedTool]:
        """What the model is offered without asking anybody, in order."""
        ...

    @property
    def listings(self) -> Sequence[Listing]:
        """Servers to be asked before the first inference, in order."""
        ...

    @property
    def decided(self) -> Sequence[ApprovedCall]:
        """Calls to be settled before the first inference, in order; to be read after the listings were fetched."""
        ...

    async def run(self, call: HostedCall) -> HostedResult:
        """Run one call within the tool's bounds. Never raises for what the tool does; cancelling ends it at once."""
        ...

    async def close(self) -> None:
        """Release what it holds. Idempotent."""
        ...


class Tools(Protocol):
    """All tools the gateway runs itself."""

    @property
    def types(self) -> frozenset[str]:
        """The declared types it runs, for example `mcp` and `web_search`."""
        ...

    def check(self, declared: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Check the declarations of one request, each with its path (`tools[2]`), before anything happens.

        Raises:
            InvalidRequest: names the parameter at fault.
        """
        ...

    def open(self, declared: Sequence[Mapping[str, Any]], context: ToolContext) -> Toolkit:
        """Return the toolkit of one response; nothing is sent yet.

        Raises:
            InvalidRequest: the input does not fit the tools, such as an approval of what was never asked.
        """
        ...

    async def close(self) -> None:
        """Close pooled sessions."""
        ...
