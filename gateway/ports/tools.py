"""Tools that the gateway runs itself: what a request declares, what the model is offered, what a call becomes.

A provider knows some declared types. For one response it opens a toolkit; the engine tells the client of listings and
calls as items, asks the toolkit to fetch and run them, and closes it when the response ends.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from gateway.protocol.hosted import HostedKind, HostedResult, HostedTool, Listed

__all__ = [
    "ApprovedCall",
    "HostedCall",
    "HostedKind",
    "HostedResult",
    "HostedTool",
    "Listed",
    "Listing",
    "ToolContext",
    "Toolkit",
    "Tools",
]


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


class Listing(Protocol):
    """One server whose tools are not known yet."""

    @property
    def label(self) -> str:
        """Its `server_label`."""
        ...

    async def fetch(self, headers: Mapping[str, str]) -> Listed:
        """Ask the server, within bounds of its own. Never raises for what the server does; cancelling ends it at once.

        Args:
            headers: trace context to hand on.
        """
        ...


class ApprovedCall(Struct, frozen=True, kw_only=True):
    """A call the client has decided about, to be settled before the model is asked again.

    Attributes:
        request_id: id of the `mcp_approval_request`.
        tool: what is to be called, of kind `mcp_call`.
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
        first_new: index of the first of them that this request brought; those before are history.
        names: names of function tools that the engine is offered besides, which no hosted tool may take.
    """

    principal: str
    response_id: str
    include: frozenset[str]
    items: Sequence[Mapping[str, Any]]
    first_new: int
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
    """Tools that the gateway runs itself: all of them, or those of one provider."""

    def runs(self, kind: str) -> bool:
        """Whether it runs tools of this declared type, for example `mcp` or `web_search`."""
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

    def show(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        """Return a declaration as the response object echoes it, without what must not be shown."""
        ...

    async def close(self) -> None:
        """Close pooled sessions."""
        ...
