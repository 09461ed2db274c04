"""One schema: file, environment, command line, JSON Schema and docs all come from it."""

from gateway.config.findings import ConfigError, Finding, Origin
from gateway.config.loader import LoadedConfig, load_config
from gateway.config.schema import (
    AdminConfig,
    EngineConfig,
    GatewayConfig,
    ResponsesConfig,
    ServerConfig,
    StorageConfig,
    TelemetryConfig,
    UpstreamConfig,
)
from gateway.config.secret import Secret, SecretUrl

__all__ = [
    "AdminConfig",
    "ConfigError",
    "EngineConfig",
    "Finding",
    "GatewayConfig",
    "LoadedConfig",
    "Origin",
    "ResponsesConfig",
    "Secret",
    "SecretUrl",
    "ServerConfig",
    "StorageConfig",
    "TelemetryConfig",
    "UpstreamConfig",
    "load_config",
]
