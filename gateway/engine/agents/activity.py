"""What metrics and traces tell of agents at work."""

from contextvars import Context, copy_context

from gateway.engine.plan import Plan
from gateway.engine.spans import describe_agent
from gateway.protocol.agents.agent import Agent, Errored
from gateway.telemetry import names
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Span, Tracing, current_span

_LONGEST_NAME = 128
_FAILED = "agent_failed"


class Activity:
    """The agents of one response that are at work, from getting work until they are done.

    Args:
        plan: the response.
        metrics: counts them.
        tracing: gives each of them a span, below that of the response.
    """

    def __init__(self, plan: Plan, metrics: Metrics, tracing: Tracing) -> None:
        self._plan = plan
        self._metrics = metrics
        self._tracing = tracing
        self._spans: dict[str, tuple[Context, Span] | None] = {}

    def begin(self, agent: Agent) -> None:
        """Note that an agent works, if that is not known."""
        if agent.path in self._spans:
            return
        self._metrics.agents_active.move(1)
        recorded = None
        if current_span().recording:
            context = copy_context()
            span = context.run(self._tracing.start_agent)
            describe_agent(span, self._plan)
            span.annotate({names.ATTR_AGENT_NAME: agent.path[:_LONGEST_NAME]})
            recorded = context, span
        self._spans[agent.path] = recorded

    def context_of(self, agent: Agent) -> Context | None:
        """Return what a task that works for the agent runs in; None for any."""
        recorded = self._spans.get(agent.path)
        return None if recorded is None else recorded[0]

    def note(self, agent: Agent) -> None:
        """Note that an agent has perhaps no work any more."""
        if agent.is_idle and agent.path in self._spans:
            self._end(agent.path, failed=isinstance(agent.status, Errored))

    def end(self) -> None:
        """End all of it: the response has come to its end."""
        for path in list(self._spans):
            self._end(path, failed=False)

    def _end(self, path: str, *, failed: bool) -> None:
        recorded = self._spans.pop(path)
        self._metrics.agents_active.move(-1)
        if recorded is not None:
            context, span = recorded
            if failed:
                span.fail(_FAILED)
            context.run(span.end)
