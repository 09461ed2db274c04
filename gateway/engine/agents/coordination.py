"""What all responses of trees of agents have in common."""

from gateway.config.schema import MultiAgentConfig
from gateway.engine.agents.coordinator import Coordinator, TreeSettings
from gateway.engine.agents.desk import Desk
from gateway.engine.agents.summaries import Summaries
from gateway.engine.agents.windows import Windows
from gateway.engine.coalescing import Coalescer
from gateway.engine.compaction import Compaction
from gateway.engine.plan import Plan
from gateway.engine.telling import Telling
from gateway.protocol.tools import HostedTypes
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing


class Coordination:
    """Begins coordinators.

    Args:
        config: bounds.
        types: tools that the gateway runs itself; None for none.
        compaction: looks after windows.
        coalescer: told of each read of an upstream.
        metrics: what is counted.
        tracing: spans.
    """

    def __init__(
        self,
        config: MultiAgentConfig,
        *,
        types: HostedTypes | None,
        compaction: Compaction,
        coalescer: Coalescer,
        metrics: Metrics,
        tracing: Tracing,
    ) -> None:
        self._types = types
        self._compaction = compaction
        self._coalescer = coalescer
        self._metrics = metrics
        self._tracing = tracing
        self.reconfigure(config)

    def reconfigure(self, config: MultiAgentConfig) -> None:
        """Use other bounds for every response that begins from now on."""
        self._settings = TreeSettings(
            deadline_seconds=config.run_deadline_s,
            max_rounds=config.max_rounds_per_response,
            grace_seconds=config.quiescence_grace_ms / 1000,
        )

    @property
    def deadline_seconds(self) -> float:
        """Longest life of a run."""
        return self._settings.deadline_seconds

    def begin(self, plan: Plan, telling: Telling) -> Coordinator:
        """Return what makes the response of a tree.

        Args:
            plan: the response.
            telling: takes its events.
        """
        desk = Desk(
            plan,
            telling,
            types=self._types,
            coalescer=self._coalescer,
            metrics=self._metrics,
            tracing=self._tracing,
        )
        compaction = self._compaction
        windows = Windows(plan, compaction, compaction.find_threshold(plan.request, plan.route), compaction.keep_bytes)
        return Coordinator(desk, self._settings, Summaries(desk, windows, compaction))
