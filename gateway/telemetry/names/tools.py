"""Names of the metrics of tools that the gateway runs itself."""

from gateway.telemetry.names.metrics import Metric, high_water

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_ROUNDS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0, 64.0)
_BYTES = tuple(float(1024 * 4**power) for power in range(6))  # 1 KiB to 1 MiB

TOOL_CALLS = Metric(
    "gateway_tool_calls_total",
    "counter",
    "Calls that the gateway ran itself, by the type of their item, and `completed`, `failed` or `cancelled`.",
    ("kind", "outcome"),
)
TOOL_CALL_SECONDS = Metric(
    "gateway_tool_call_seconds",
    "histogram",
    "Time of one call that the gateway ran itself, waiting for its turn aside.",
    ("kind",),
    _SECONDS,
)
TOOL_OUTPUT_BYTES = Metric("gateway_tool_output_bytes", "histogram", "Output of one call, if it was taken.", (), _BYTES)
TOOL_LISTINGS = Metric(
    "gateway_tool_listings_total",
    "counter",
    "Times a server was asked for its tools: `completed`, `failed` or `cancelled`.",
    ("outcome",),
)
TOOL_ROUNDS = Metric(
    "gateway_tool_rounds",
    "histogram",
    "Inference calls of one response for which the gateway had tools of its own.",
    (),
    _ROUNDS,
)
TOOL_WORK_RUNNING = Metric(
    "gateway_tool_work_running",
    "gauge",
    "Calls and listings of the gateway's tools that run now, bounded by `tools.max_concurrent_materializations`.",
)
TOOL_WORK_RUNNING_HIGH = high_water(TOOL_WORK_RUNNING)
TOOL_WORK_WAITING = Metric(
    "gateway_tool_work_waiting", "gauge", "Calls and listings of the gateway's tools that wait for their turn."
)
TOOL_WORK_WAITING_HIGH = high_water(TOOL_WORK_WAITING)
MCP_SESSIONS = Metric(
    "gateway_mcp_sessions", "gauge", "Sessions with MCP servers open now, those kept for the next response included."
)
MCP_SESSIONS_HIGH = high_water(MCP_SESSIONS)
MCP_FAULTS = Metric(
    "gateway_mcp_faults_total",
    "counter",
    "Requests to MCP servers that came to nothing by the server's doing or a bound, by the protocol's method.",
    ("method",),
)
MCP_TOOLS_LEFT_OUT = Metric(
    "gateway_mcp_tools_left_out_total",
    "counter",
    "Tools of MCP servers that no model can be offered: their `name` is none or taken, or their `schema` no object's.",
    ("reason",),
)
