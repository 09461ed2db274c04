"""Every setting, once: type, default, bounds and description."""

from collections.abc import Mapping

from msgspec import field

from gateway.config.schema.agents import MultiAgentConfig
from gateway.config.schema.auth import AuthConfig
from gateway.config.schema.background import BackgroundConfig
from gateway.config.schema.compaction import CompactionConfig, SecurityConfig
from gateway.config.schema.conversations import ConversationsConfig
from gateway.config.schema.limits import LimitsConfig
from gateway.config.schema.mcp import McpConfig, McpServerConfig
from gateway.config.schema.oidc import OidcConfig
from gateway.config.schema.responses import EngineConfig, ResponsesConfig
from gateway.config.schema.section import Section
from gateway.config.schema.server import AdminConfig, ServerConfig
from gateway.config.schema.storage import StorageConfig
from gateway.config.schema.telemetry import TelemetryConfig
from gateway.config.schema.tools import ToolsConfig
from gateway.config.schema.upstream import AllowedField, UpstreamConfig
from gateway.config.schema.web_search import WebSearchConfig
from gateway.config.schema.websocket import InjectConfig, SteerConfig, WebSocketConfig

__all__ = [
    "DEFAULT_UPSTREAM",
    "AdminConfig",
    "AllowedField",
    "AuthConfig",
    "BackgroundConfig",
    "CompactionConfig",
    "ConversationsConfig",
    "EngineConfig",
    "GatewayConfig",
    "InjectConfig",
    "LimitsConfig",
    "McpConfig",
    "McpServerConfig",
    "MultiAgentConfig",
    "OidcConfig",
    "ResponsesConfig",
    "Section",
    "SecurityConfig",
    "ServerConfig",
    "SteerConfig",
    "StorageConfig",
    "TelemetryConfig",
    "ToolsConfig",
    "UpstreamConfig",
    "WebSearchConfig",
    "WebSocketConfig",
]

DEFAULT_UPSTREAM = "default"


class GatewayConfig(Section, frozen=True, kw_only=True):
    """The whole configuration."""

    server: ServerConfig = field(default_factory=ServerConfig)
    admin: AdminConfig = field(default_factory=AdminConfig)
    auth: AuthConfig = field(default_factory=AuthConfig)
    oidc: OidcConfig = field(default_factory=OidcConfig)
    limits: LimitsConfig = field(default_factory=LimitsConfig)
    upstream: UpstreamConfig | None = None
    upstreams: Mapping[str, UpstreamConfig] = {}
    websocket: WebSocketConfig = field(default_factory=WebSocketConfig)
    responses: ResponsesConfig = field(default_factory=ResponsesConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    tools: ToolsConfig = field(default_factory=ToolsConfig)
    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    multi_agent: MultiAgentConfig = field(default_factory=MultiAgentConfig)
    security: SecurityConfig = field(default_factory=SecurityConfig)
    web_search: WebSearchConfig = field(default_factory=WebSearchConfig)
    mcp: McpConfig = field(default_factory=McpConfig)
    conversations: ConversationsConfig = field(default_factory=ConversationsConfig)
    background: BackgroundConfig = field(default_factory=BackgroundConfig)
    storage: StorageConfig = field(default_factory=StorageConfig)
    telemetry: TelemetryConfig = field(default_factory=TelemetryConfig)

    def passthrough_paths(self) -> set[str]:
        """Return every path that an inference server may be called at."""
        return {path for upstream in self.upstream_map().values() for path in upstream.passthrough}

    def upstream_map(self) -> dict[str, UpstreamConfig]:
        """Return the inference servers by name; `[upstream]`, or none at all, is one named `default`."""
        return dict(self.upstreams) or {DEFAULT_UPSTREAM: self.upstream or UpstreamConfig()}
