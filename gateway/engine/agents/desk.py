"""What the owner of a response has at hand, and those who take steps for it."""

import asyncio
from collections.abc import Iterable

from gateway.engine.agents.inbox import Inbox
from gateway.engine.coalescing import Coalescer
from gateway.engine.plan import Plan
from gateway.engine.telling import Telling
from gateway.protocol.agents.tree import Tree
from gateway.protocol.agents.turn import TreeTurn
from gateway.protocol.events import Event
from gateway.protocol.tools import HostedTypes
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing


class Desk:
    """One response of a tree of agents. Its tree and its turn are changed in steps of the owner alone.

    Args:
        plan: the response.
        telling: takes the events.
        types: tools that the gateway runs itself; None for none.
        coalescer: told of each read of an upstream.
        metrics: what is counted.
        tracing: spans.

    Attributes:
        plan: the response, as its request is now: outputs may bring tools.
        tree: the agents.
        turn: the response.
        telling: as given.
        types: as given.
        inbox: the owner's.
        coalescer: as given.
        metrics: as given.
        tracing: as given.
    """

    def __init__(
        self,
        plan: Plan,
        telling: Telling,
        *,
        types: HostedTypes | None,
        coalescer: Coalescer,
        metrics: Metrics,
        tracing: Tracing,
    ) -> None:
        assert plan.tree is not None
        assert isinstance(plan.turn, TreeTurn)
        self.plan = plan
        self.tree: Tree = plan.tree
        self.turn: TreeTurn = plan.turn
        self.telling = telling
        self.types = types
        self.inbox = Inbox()
        self._failure: Exception | None = None
        self.coalescer = coalescer
        self.metrics = metrics
        self.tracing = tracing

    @property
    def now(self) -> float:
        """The time by which agents wait."""
        return asyncio.get_running_loop().time()

    def fail(self, error: Exception) -> None:
        """Have the response end with an error, the first if there are several."""
        if self._failure is None:
            self._failure = error

    @property
    def has_failed(self) -> bool:
        """Whether the response is to end with an error."""
        return self._failure is not None

    def check(self) -> None:
        """Raise the error that the response is to end with, if there is one.

        It is raised here alone: who holds an error that passes by holds itself, until the garbage collector comes.
        """
        failure, self._failure = self._failure, None
        if failure is not None:
            try:
                raise failure
            finally:
                del failure

    def tell(self, out: Iterable[Event]) -> None:
        """Keep events for the client.

        Raises:
            ResourceLimitExceeded: one cannot be sent.
        """
        self.telling.keep(out)
