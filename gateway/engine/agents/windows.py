"""What each agent's model is shown of its history, and when that has grown too long."""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.engine.compaction import Compaction
from gateway.engine.plan import Plan
from gateway.protocol.agents.agent import Agent
from gateway.protocol.agents.history import recall_agents
from gateway.protocol.compaction import COMPACTION, Window, build_window, estimate_tokens
from gateway.protocol.response import Usage
from gateway.protocol.tools import list_loaded

Item = dict[str, Any]
_NOTE = "note"
_TOOLS, _LISTING = "additional_tools", "mcp_list_tools"
# They tell the gateway of tools, and the model nothing.
_UNSEEN = frozenset({_TOOLS, _LISTING})


class _Measure(Struct):
    """How long one agent's input is: estimated in all, and as the engine counted it.

    Attributes:
        fixed: estimate of what does not change: instructions and tools.
        tokens: estimate of everything, that included.
        taken: how many items of the history that covers.
        used: tokens of its newest inference, and an estimate of what came behind its input.
    """

    fixed: int
    tokens: int
    taken: int
    used: int = 0


class Windows:
    """The windows of all agents of one response, each of its own.

    Args:
        plan: the response.
        compaction: opens notes of other responses.
        threshold: tokens from which on a window is compacted; None for never.
        keep_bytes: how much of the user's messages stays word for word; None for all.

    Attributes:
        plan: the response, as its request is now.
    """

    def __init__(self, plan: Plan, compaction: Compaction, threshold: int | None, keep_bytes: int | None) -> None:
        self.plan = plan
        self._compaction = compaction
        self._threshold = threshold
        self._keep_bytes = keep_bytes
        self._measures: dict[str, _Measure] = {}
        self._opened: dict[str, str | None] = {}

    def show(self, agent: Agent) -> list[Item]:
        """Return what the agent's model is shown, in the engine's form."""
        return self.read(agent.history).carry(self._carry).show()

    def read(self, items: Sequence[Item]) -> Window:
        """Return the window that items of a history make, in tree form."""
        notes = {}
        for position, item in enumerate(items):
            if item.get("type") == COMPACTION and (note := self._find_note(item)) is not None:
                notes[position] = note
        return build_window(items, notes, self._keep_bytes)

    def summarize(self, items: Sequence[Item]) -> Window:
        """Return the window that is to be summarized, in the engine's form."""
        return self.read(items).carry(self._carry)

    def compact(self, items: Sequence[Item], note: str) -> list[Item]:
        """Return what takes the place of items that a note tells of: all of them but messages of the user.

        What they tell of tools is kept too, in items that no model is shown.
        """
        window = self.read(items)
        said = [item for item in window.tail if item["type"] == "message"]
        kept = Window(kept=window.kept, tail=said).compact(note, self._keep_bytes).kept
        tools = [tool for _, found in list_loaded(items) for tool in found]
        loaded = [{"type": _TOOLS, "role": "developer", "tools": tools}] if tools else []
        listed = [item for item in items if item["type"] == _LISTING]
        return [*kept, *loaded, *listed, {"type": COMPACTION, _NOTE: note}]

    # ------------------------------------------------------------ how long they are

    def is_due(self, agent: Agent, fixed: Sequence[Any]) -> bool:
        """Tell whether an agent's window is to be compacted before its next inference.

        Args:
            agent: the agent, at its boundary.
            fixed: what it is shown besides: instructions and tools.
        """
        if self._threshold is None:
            return False
        history = agent.history
        measure = self._measures.get(agent.path)
        if measure is None:
            measure = self._measure(agent, estimate_tokens(fixed))
        elif len(history) > measure.taken:
            added = _estimate(history[measure.taken :])
            measure.tokens += added
            measure.taken = len(history)
            measure.used += added if measure.used else 0
        return max(measure.tokens, measure.used) > self._threshold

    def note_usage(self, agent: Agent, usage: Usage | None) -> None:
        """Note what an inference of the agent took as its input, before its own items are in the history."""
        measure = self._measures.get(agent.path)
        if measure is not None:
            measure.used = 0 if usage is None else usage.input_tokens

    def measure_anew(self, agent: Agent) -> None:
        """Measure the agent's window anew, if it was measured: other items are in it."""
        measure = self._measures.get(agent.path)
        if measure is not None:
            self._measure(agent, measure.fixed)

    # ------------------------------------------------------------ inside

    def _measure(self, agent: Agent, fixed: int) -> _Measure:
        tokens = fixed + _estimate(self.read(agent.history).show())
        measure = self._measures[agent.path] = _Measure(fixed, tokens, len(agent.history))
        return measure

    def _carry(self, items: list[Item]) -> list[Item]:
        return self.plan.request.carry(recall_agents(items))

    def _find_note(self, item: Mapping[str, Any]) -> str | None:
        if _NOTE in item:
            note: str = item[_NOTE]
            return note
        token = item.get("encrypted_content")
        if not isinstance(token, str):
            return None
        if token not in self._opened:
            read = self._compaction.notes.read(self.plan.caller.principal, [dict(item)], first_new=1)
            self._opened[token] = read.get(0)
        return self._opened[token]


def _estimate(items: Sequence[Item]) -> int:
    return estimate_tokens([item for item in items if item["type"] not in _UNSEEN])
