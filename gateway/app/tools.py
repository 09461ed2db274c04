"""Builds the tools that the gateway runs itself."""

from collections.abc import Sequence

from gateway.config.schema import GatewayConfig
from gateway.ports import Tools
from gateway.telemetry.metrics import Metrics
from gateway.tools.gate import Gate
from gateway.tools.registry import ToolRegistry


def build_tools(config: GatewayConfig, metrics: Metrics) -> ToolRegistry:
    """Build all tools, behind one gate."""
    return ToolRegistry(_build_providers(config), Gate(config.tools, metrics))


def _build_providers(config: GatewayConfig) -> Sequence[Tools]:  # noqa: ARG001
    return ()
