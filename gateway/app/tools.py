"""Builds the tools that the gateway runs itself."""

from collections.abc import Iterator

from gateway.app.errors import StartError
from gateway.config.certificates import CertificateFileError
from gateway.config.schema import GatewayConfig
from gateway.ports import Tools
from gateway.telemetry.metrics import Metrics
from gateway.tools.gate import Gate
from gateway.tools.mcp.provider import McpTools, McpUnavailable
from gateway.tools.registry import ToolRegistry


def build_tools(config: GatewayConfig, metrics: Metrics) -> ToolRegistry:
    """Build all tools, behind one gate.

    Raises:
        StartError: one cannot be built as it is configured.
    """
    return ToolRegistry(list(_build_providers(config, metrics)), Gate(config.tools, metrics))


def _build_providers(config: GatewayConfig, metrics: Metrics) -> Iterator[Tools]:
    if config.web_search.provider != "off":
        # Gateways without it need not wait for a client of HTTP.
        from gateway.tools.web_search.search import WebSearch  # noqa: PLC0415

        try:
            yield WebSearch(config.web_search, metrics)
        except CertificateFileError as error:
            raise StartError(f"web_search.ca_file: {error}") from error
    try:
        yield McpTools(config.mcp, metrics)
    except McpUnavailable as error:
        raise StartError(str(error)) from error
