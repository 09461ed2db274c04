"""When an agent's window is summarized, and what a summary comes to. Every agent has a window of its own."""

from functools import partial

from gateway.engine.agents.asking import Asking
from gateway.engine.agents.desk import Desk
from gateway.engine.agents.windows import Windows
from gateway.engine.compaction import Compaction, build_task, failed_too_often
from gateway.engine.plan import Plan
from gateway.engine.summary import Summary
from gateway.protocol.agents.agent import Agent
from gateway.protocol.agents.mail import Item
from gateway.protocol.compaction import Window
from gateway.protocol.errors import CompactionFailed, GatewayError
from gateway.protocol.response import Usage


class Draft:
    """A summary that is being written.

    Args:
        covered: how many items of the history it is to replace.
        items: these items.
        window: what the model is shown of them.
    """

    __slots__ = ("covered", "items", "window")

    def __init__(self, covered: int, items: list[Item], window: Window) -> None:
        self.covered = covered
        self.items = items
        self.window = window


class Summaries:
    """Looks after the windows of all agents of one response.

    Args:
        desk: what the owner has at hand.
        windows: what models are shown of histories.
        compaction: writes and seals notes.
    """

    def __init__(self, desk: Desk, windows: Windows, compaction: Compaction) -> None:
        self._desk = desk
        self._windows = windows
        self._compaction = compaction

    def show(self, agent: Agent) -> list[Item]:
        """Return what the agent's model is shown, in the engine's form."""
        return self._windows.show(agent)

    def adopt(self, plan: Plan) -> None:
        """Show histories by another form of the request from now on."""
        self._windows.plan = plan

    def note_usage(self, agent: Agent, usage: Usage | None) -> None:
        """Note what an inference of the agent took."""
        self._windows.note_usage(agent, usage)

    def is_due(self, agent: Agent, asking: Asking) -> bool:
        """Tell whether an agent's window is to be compacted before its next inference."""
        instructions = asking.plan_for(agent).request.fields.instructions
        return self._windows.is_due(agent, [instructions, asking.tools])

    def begin(self, agent: Agent) -> Draft:
        """Take note of what is to be summarized."""
        covered = self._desk.tree.begin_compaction(agent)
        items = agent.history[:covered]
        return Draft(covered, items, self._windows.summarize(items))

    async def write(self, agent: Agent, draft: Draft, asking: Asking) -> Summary:
        """Have the summary written.

        Raises:
            GatewayError: the model could not be asked, or not in time.
        """
        return await self._compaction.summarizer.summarize(build_task(asking.plan_for(agent)), draft.window)

    def take(self, agent: Agent, draft: Draft, summary: Summary, *, smaller: bool = True) -> GatewayError | None:
        """Put a summary into the place of what it tells of, and tell of that; returns why it is of no use, if so.

        Args:
            agent: the agent.
            draft: what was begun.
            summary: what was written.
            smaller: whether it has to be shorter than what it tells of.
        """
        desk = self._desk
        window = draft.window if smaller else None
        try:
            told = self._compaction.take(
                desk.plan, summary, window, partial(desk.turn.tell_compaction, agent=agent.path)
            )
        except GatewayError as error:
            return error
        desk.tree.end_compaction(agent, self._windows.compact(draft.items, summary.text), draft.covered)
        self._windows.measure_anew(agent)
        desk.tell(told)
        return None

    def fail(self, agent: Agent, draft: Draft, error: GatewayError) -> CompactionFailed | None:
        """Leave a window as it is; returns what the agent fails with if that has happened too often in a row."""
        self._desk.tree.end_compaction(agent, None, draft.covered)
        return failed_too_often(agent.failures, self._compaction.max_failures, error)
