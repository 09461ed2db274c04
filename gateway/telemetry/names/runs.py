"""Names of the metrics of background responses."""

from gateway.telemetry.names.metrics import Metric, high_water

BACKGROUND_QUEUED = Metric("gateway_background_queued", "gauge", "Background responses that wait for their turn.")
BACKGROUND_QUEUED_HIGH = high_water(BACKGROUND_QUEUED)
BACKGROUND_RUNNING = Metric("gateway_background_running", "gauge", "Background responses being made now.")
BACKGROUND_RUNNING_HIGH = high_water(BACKGROUND_RUNNING)
BACKGROUND_READERS = Metric("gateway_background_readers", "gauge", "Clients that read the events of a response now.")
BACKGROUND_READERS_HIGH = high_water(BACKGROUND_READERS)
BACKGROUND_RECOVERED = Metric(
    "gateway_background_recovered_total",
    "counter",
    "Background responses taken over from a process that is gone, by what became of them: `restarted`, `failed` or "
    "`cancelled`.",
    ("outcome",),
)
BACKGROUND_EVENT_BYTES = Metric(
    "gateway_background_event_bytes_total", "counter", "Bytes of events stored for background responses."
)

TRANSPORT_BACKGROUND = "background"
"""What stands for the transport of responses that no client waits for."""
TRANSPORT_WEBSOCKET = "websocket"
"""The transport of responses into which their client may still send something."""
