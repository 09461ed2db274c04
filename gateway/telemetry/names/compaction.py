"""Names of what is told of compaction."""

from gateway.telemetry.names.metrics import Metric

_SECONDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)

COMPACTIONS = Metric(
    "gateway_compactions_total",
    "counter",
    "Attempts at replacing a history by a note: `compacted`, or why not: `failed`, `timeout`, `empty`, `too_long`, "
    "`too_large`.",
    ("outcome",),
)
COMPACTION_SECONDS = Metric(
    "gateway_compaction_seconds",
    "histogram",
    "Time in which an inference server wrote a note of a history, or failed to.",
    (),
    _SECONDS,
)
