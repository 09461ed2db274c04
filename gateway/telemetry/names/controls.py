"""Names of the metrics of injects and steers."""

from gateway.telemetry.names.metrics import Metric, high_water

WEBSOCKET_CONTROLS = Metric(
    "gateway_websocket_controls_total",
    "counter",
    "Answers to `response.inject` and `response.steer`: `accepted`, `pending`, or the code of the failure.",
    ("control", "outcome"),
)
WEBSOCKET_CONTROLS_WAITING = Metric(
    "gateway_websocket_controls_waiting", "gauge", "Injects and steers of WebSockets that wait to be answered."
)
WEBSOCKET_CONTROLS_WAITING_HIGH = high_water(WEBSOCKET_CONTROLS_WAITING)
WEBSOCKET_CONTROL_BYTES = Metric(
    "gateway_websocket_control_bytes", "gauge", "Bytes of the injects and steers that wait to be answered."
)
WEBSOCKET_CONTROL_BYTES_HIGH = high_water(WEBSOCKET_CONTROL_BYTES)
