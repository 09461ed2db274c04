"""The MCP servers of one response: what they list, what the model is offered of it, and its calls."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gateway.config.schema import McpConfig
from gateway.ports import ApprovedCall, HostedCall, HostedResult, HostedTool, Listed, Listing, ToolContext
from gateway.protocol import codec
from gateway.protocol.approvals import Decision
from gateway.protocol.hosted import fail_call
from gateway.telemetry import names
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import current_span
from gateway.tools.mcp.declaration import Declaration, ToolFilter
from gateway.tools.mcp.discovery import fetch_tools
from gateway.tools.mcp.exchange import Allowance, Exchange, ServerFault, hide, hide_in
from gateway.tools.mcp.pool import Lease
from gateway.tools.mcp.results import read_result
from gateway.tools.mcp.selection import Selection, find_listing, stand_in

_logger = logging.getLogger(names.LOGGER_MCP)
_MOST_DEPTH = 64
_LIST = "tools/list"
_CALL = "tools/call"


class Server:
    """One server of a response.

    Args:
        declaration: what the request says of it.
        lease: what it is used through.
        operator: which of its tools any request may use.
        secrets: what its texts must not repeat.
    """

    def __init__(self, declaration: Declaration, lease: Lease, operator: ToolFilter, secrets: Sequence[str]) -> None:
        self.declaration = declaration
        self.lease = lease
        self.operator = operator
        self.secrets = secrets
        self.offered: dict[str, HostedTool] = {}

    @property
    def label(self) -> str:
        """What the request calls it."""
        return self.declaration.label


class McpToolkit:
    """The toolkit of one response.

    Args:
        servers: in the request's order.
        decisions: what the client decided about earlier calls.
        context: of the response.
        config: the bounds.
        metrics: where what is met is counted.
    """

    def __init__(
        self,
        servers: Sequence[Server],
        decisions: Sequence[Decision],
        context: ToolContext,
        config: McpConfig,
        metrics: Metrics,
    ) -> None:
        self._servers = {server.label: server for server in servers}
        self._decisions = decisions
        self._config = config
        self._metrics = metrics
        self._allowance = Allowance(config.max_discovery_bytes)
        self._selection = Selection(
            config.max_tools, context.names, lambda reason: metrics.mcp_tools_left_out_total.labels(reason).inc()
        )
        self.listings: list[Listing] = []
        for server in servers:
            listed = find_listing(context.items, server.label)
            if listed is None or not self._reuse(server, listed):
                self.listings.append(_ServerListing(server, self._fetch))

    @property
    def offered(self) -> Sequence[HostedTool]:
        """The tools of servers that an earlier response has listed."""
        asked = {listing.label for listing in self.listings}
        known = (server for label, server in self._servers.items() if label not in asked)
        return [tool for server in known for tool in server.offered.values()]

    @property
    def decided(self) -> Sequence[ApprovedCall]:
        """The calls that the client decided about."""
        return [self._settle(decision) for decision in self._decisions]

    async def run(self, call: HostedCall) -> HostedResult:
        """Call a tool; whatever its server does is a result."""
        server = self._servers[call.tool.label]
        try:
            return await self._call(server, call)
        except ServerFault as fault:
            self._note(fault, _CALL, server)
            return fail_call(call.tool, _tell(fault, server))

    async def close(self) -> None:
        """Let go of the servers; what ends, ends in the background."""
        for server in self._servers.values():
            server.lease.release()

    async def _call(self, server: Server, call: HostedCall) -> HostedResult:
        if call.tool.name not in server.offered:
            raise ServerFault(f"offers no tool '{call.tool.name[:128]}' to this response")
        exchange = Exchange()
        params = {
            "name": call.tool.name,
            "arguments": _read_arguments(call.arguments),
            "_meta": _build_meta(call.headers),
        }
        try:
            result = await server.lease.request(
                _CALL,
                params,
                timeout=self._config.call_timeout_seconds,
                bound="mcp.call_timeout_seconds",
                exchange=exchange,
            )
        finally:
            _describe(server, _CALL, exchange.request_id)
        return read_result(result, server.secrets)

    async def _fetch(self, server: Server, headers: Mapping[str, str]) -> Listed:
        try:
            listed = await fetch_tools(
                server.lease, self._allowance, self._config.list_timeout_seconds, _build_meta(headers)
            )
            shown = hide_in(listed, server.secrets) if server.secrets else listed
            found = self._selection.pick(server.declaration, shown, server.operator)
        except ServerFault as fault:
            self._note(fault, _LIST, server)
            return Listed(tools=(), offered=(), size=0, error=_tell(fault, server))
        finally:
            _describe(server, _LIST)
        server.offered = {tool.name: tool for tool in found.offered}
        return Listed(tools=found.tools, offered=found.offered, size=len(codec.encode(found.tools)))

    def _reuse(self, server: Server, listed: Sequence[Mapping[str, Any]]) -> bool:
        """Offer what an earlier response has listed, unless it is more than may be."""
        try:
            found = self._selection.pick(server.declaration, listed, server.operator)
        except ServerFault:
            return False
        server.offered = {tool.name: tool for tool in found.offered}
        return True

    def _settle(self, decision: Decision) -> ApprovedCall:
        label, name = str(decision.request.get("server_label")), str(decision.request.get("name"))
        return ApprovedCall(
            request_id=str(decision.request.get("id")),
            tool=stand_in(label, name),
            arguments=str(decision.request.get("arguments")),
            approved=decision.approved,
            reason=decision.reason,
        )

    def _note(self, fault: ServerFault, method: str, server: Server) -> None:
        self._metrics.note_rejection(fault.bound)
        self._metrics.mcp_faults_total.labels(method).inc()
        _logger.warning(
            "an MCP server failed: %s", hide(fault.message, server.secrets)[:_LOGGED], extra=_fields(server)
        )


class _ServerListing:
    """A server that is still to be asked."""

    def __init__(self, server: Server, fetch: Callable[..., Any]) -> None:
        self._server = server
        self._fetch = fetch

    @property
    def label(self) -> str:
        """What the request calls it."""
        return self._server.label

    async def fetch(self, headers: Mapping[str, str]) -> Listed:
        """Ask it."""
        listed: Listed = await self._fetch(self._server, headers)
        return listed


_LOGGED = 200


def _fields(server: Server) -> dict[str, str]:
    return {names.FIELD_SERVER: server.label}


def _tell(fault: ServerFault, server: Server) -> str:
    return hide(f"The MCP server '{server.label}' {fault.message}.", server.secrets)


def _read_arguments(text: str) -> dict[str, Any]:
    """Return the arguments of a call.

    Raises:
        ServerFault: they are no JSON object, which the model is told.
    """
    try:
        given = text.encode("utf-8", "surrogatepass") if text.strip() else b"{}"
        arguments = codec.decode(given, max_depth=_MOST_DEPTH)
    except codec.TooDeepError:
        raise ServerFault(f"was not called: the arguments have more than {_MOST_DEPTH} levels") from None
    except ValueError:
        raise ServerFault("was not called: the arguments are not valid JSON") from None
    if not isinstance(arguments, dict):
        raise ServerFault("was not called: the arguments are not a JSON object")
    return arguments


def _build_meta(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the trace context for `_meta`, where its keys stand without a prefix."""
    return {name: headers[name] for name in ("traceparent", "tracestate", "baggage") if name in headers}


def _describe(server: Server, method: str, request_id: int | None = None) -> None:
    span = current_span()
    if not span.recording:
        return
    session = server.lease.session
    span.annotate(
        {
            names.ATTR_MCP_METHOD: method,
            names.ATTR_JSONRPC_ID: None if request_id is None else str(request_id),
            names.ATTR_MCP_SESSION: session.session_id if session is not None else None,
            names.ATTR_MCP_VERSION: session.protocol_version or None if session is not None else None,
        }
    )
