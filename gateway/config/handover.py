"""A configuration as bytes, for another process of this gateway. They hold the secrets."""

from typing import Any

import msgspec

from gateway.config.schema import GatewayConfig
from gateway.config.secret import Secret


def pack(config: GatewayConfig) -> bytes:
    """Return the configuration as JSON, secrets included."""
    return msgspec.json.encode(config, enc_hook=_reveal)


def unpack(packed: bytes) -> GatewayConfig:
    """Return what was packed by the same version."""
    return msgspec.json.decode(packed, type=GatewayConfig, dec_hook=_conceal)


def _reveal(value: Any) -> str:
    if isinstance(value, Secret):
        return value.reveal()
    raise NotImplementedError(type(value))


def _conceal(kind: type, value: Any) -> Any:
    if issubclass(kind, Secret):
        return kind(value)
    raise NotImplementedError(kind)
