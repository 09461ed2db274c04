"""Names of the metrics of agents."""

from gateway.telemetry.names.metrics import Metric, high_water

_ROUNDS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)

AGENTS_ACTIVE = Metric("gateway_agents_active", "gauge", "Agents that have work now, in all responses that are made.")
AGENTS_ACTIVE_HIGH = high_water(AGENTS_ACTIVE)
AGENTS_SPAWNED = Metric("gateway_agents_spawned_total", "counter", "Agents that other agents have started.")
AGENT_ACTIONS = Metric(
    "gateway_agent_actions_total", "counter", "Calls of the six actions, by action, and `done` or `refused`.",
    ("action", "outcome"),
)  # fmt: skip
AGENT_ROUNDS = Metric(
    "gateway_agent_rounds", "histogram", "Inference calls of all agents of one multi-agent response.", (), _ROUNDS
)
