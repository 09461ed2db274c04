"""Shows the limits in effect beside what is measured against them."""

from gateway.config.schema import GatewayConfig
from gateway.telemetry.metrics import Metrics

_KEYS = (
    "responses.max_retained_bytes",
    "responses.max_upstream_json_bytes",
    "responses.max_upstream_sse_line_bytes",
    "responses.max_stream_event_bytes",
    "server.max_request_body_bytes",
    "websocket.max_message_bytes",
)


def show_limits(metrics: Metrics, config: GatewayConfig) -> None:
    """Show the limits that have a histogram of what they bound."""
    for key in _KEYS:
        section, _, name = key.partition(".")
        metrics.limit_bytes.labels(key).set(getattr(getattr(config, section), name))
