"""Runs tools of the type `mcp`."""

import ssl
from collections.abc import Hashable, Mapping, Sequence
from functools import cached_property
from importlib.util import find_spec
from typing import Any, Final

from gateway.config.certificates import trust_file
from gateway.config.mcp_servers import read_headers
from gateway.config.schema import McpConfig, McpServerConfig
from gateway.ports import ToolContext, Toolkit
from gateway.protocol.approvals import settle_approvals
from gateway.protocol.errors import InvalidRequest
from gateway.telemetry.metrics import Metrics
from gateway.tools.mcp.declaration import ANY_TOOL, Declaration, read_declaration, show_declaration
from gateway.tools.mcp.pool import Pool
from gateway.tools.mcp.selection import name_tools
from gateway.tools.mcp.targets import Endpoint, Program, Target
from gateway.tools.mcp.toolkit import McpToolkit, Server

TYPE: Final = "mcp"


class McpUnavailable(Exception):
    """Servers are configured that cannot be used as things are."""


class McpTools:
    """Tools of MCP servers.

    Args:
        config: the servers and the bounds.
        metrics: what is counted.

    Raises:
        McpUnavailable: servers are configured and the extra is not installed, or a file of theirs cannot be read.
    """

    def __init__(self, config: McpConfig, metrics: Metrics) -> None:
        self._config = config
        self._metrics = metrics
        installed = find_spec("mcp") is not None
        if config.servers and not installed:
            raise McpUnavailable("[mcp.servers] needs the extra: pip install 'responses-gateway[mcp]'")
        self._usable = installed and bool(config.servers or config.allow_request_servers)
        self._targets = {label: self._build_target(label, server) for label, server in config.servers.items()}
        self._pool = Pool(config, metrics.mcp_sessions)

    def runs(self, kind: str) -> bool:
        """Whether `mcp` is meant, and there can be servers."""
        return kind == TYPE and self._usable

    def check(self, declared: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Check the servers of one request.

        Raises:
            InvalidRequest: names the parameter at fault.
        """
        if len(declared) > self._config.max_servers:
            raise InvalidRequest(
                f"'tools' has {len(declared)} MCP servers; at most {self._config.max_servers} are accepted.",
                code="array_above_max_length",
                bound="mcp.max_servers",
                param="tools",
            )
        labels: set[str] = set()
        for path, tool in declared:
            label = read_declaration(tool, path, self._config).label
            if label in labels:
                raise InvalidRequest(
                    f"'{path}.server_label' repeats '{label}'; labels tell servers apart.",
                    code="invalid_value",
                    param=f"{path}.server_label",
                )
            labels.add(label)

    def open(self, declared: Sequence[Mapping[str, Any]], context: ToolContext) -> Toolkit:
        """Return the toolkit of one response.

        Raises:
            InvalidRequest: an approval does not fit.
        """
        declarations = [read_declaration(tool, "tools", self._config) for tool in declared]
        decisions = settle_approvals(context.items, context.first_new)
        servers = [self._build_server(declaration, context.principal) for declaration in declarations]
        return McpToolkit(servers, decisions, context, self._config, self._metrics)

    def show(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        """Return a declaration as the response object echoes it, without its secrets."""
        return show_declaration(tool)

    async def close(self) -> None:
        """End every session."""
        await self._pool.close()

    @cached_property
    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context()

    def _build_server(self, declaration: Declaration, principal: str) -> Server:
        target, key = self._find_target(declaration, principal)
        configured = self._config.servers.get(declaration.label) if declaration.url is None else None
        operator = name_tools(configured.allowed_tools) if configured is not None else ANY_TOOL
        return Server(declaration, self._pool.lease(target, key), operator, target.secrets)

    def _find_target(self, declaration: Declaration, principal: str) -> tuple[Target, Hashable | None]:
        """Return a server, and what its session is kept under; with a request's own credentials it is not kept."""
        label = declaration.label
        if declaration.url is not None:
            private = self._config.allow_private_addresses
            return Endpoint(url=declaration.url, headers=declaration.headers, private=private, tls=self._tls), None
        target = self._targets[label]
        if isinstance(target, Program):
            return target, (label,)
        if not declaration.headers:
            return target, (label, principal)
        merged = {**target.headers, **declaration.headers}
        return Endpoint(url=target.url, headers=merged, private=True, tls=target.tls), None

    def _build_target(self, label: str, server: McpServerConfig) -> Target:
        if server.url is None:
            assert server.command is not None
            return Program(
                label=label,
                command=(server.command, *server.args),
                env={name: secret.reveal() for name, secret in server.env.items()},
                env_pass=server.env_pass,
                cwd=server.cwd,
            )
        try:
            headers = read_headers(server)
            tls = trust_file(server.ca_file) if server.ca_file is not None else self._tls
        except (OSError, ValueError) as error:
            raise McpUnavailable(f"mcp.servers.{label}: {error}") from error
        return Endpoint(url=server.url, headers=headers, private=True, tls=tls)
