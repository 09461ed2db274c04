"""Names of the metrics of what principals use; no label says which principal, for nobody knows how many there are."""

from gateway.telemetry.names.metrics import Metric

USAGE_LOST = Metric(
    "gateway_usage_lost_responses_total",
    "counter",
    "Responses whose tokens count for no principal, because `storage.usage_max_entries` waited to be stored.",
)
USAGE_FAILURES = Metric(
    "gateway_usage_failures_total",
    "counter",
    "Times the tokens of principals could not be stored, which is tried again.",
)
