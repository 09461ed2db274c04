"""The tasks of agents: whatever has to be waited for, one at most for each of them."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any, TypeAlias

from gateway.engine.agents.activity import Activity
from gateway.engine.agents.inbox import Inbox
from gateway.engine.agents.inference import AgentInference
from gateway.engine.hosting import cancel_all
from gateway.protocol.agents.agent import Agent
from gateway.protocol.agents.tree_round import TreeRound

End: TypeAlias = Callable[[Any, Exception | None], None]
"""Goes on with an agent: what its task returned, or what it failed with. Both are None for one that was cut."""


class Worker:
    """What one agent has going on: an inference, its tools, or a summary.

    Args:
        agent: the agent.
        inference: the inference, if it is one.

    Attributes:
        agent: as given.
        inference: as given.
        task: does it.
    """

    __slots__ = ("agent", "inference", "task")

    def __init__(self, agent: Agent, inference: AgentInference | None = None) -> None:
        self.agent = agent
        self.inference = inference
        self.task: asyncio.Task[Any]


class Workers:
    """Everything that goes on for the agents of one response besides the steps of its owner.

    Args:
        inbox: the owner's.
        activity: told when an agent has come to its end.
    """

    def __init__(self, inbox: Inbox, activity: Activity) -> None:
        self._inbox = inbox
        self._activity = activity
        self._working: dict[str, Worker] = {}

    def __bool__(self) -> bool:
        return bool(self._working)

    @property
    def inferring(self) -> Iterator[TreeRound]:
        """The rounds whose inferences go on."""
        for worker in self._working.values():
            if worker.inference is not None:
                yield worker.inference.round

    def begin(self, worker: Worker, job: Coroutine[Any, Any, Any], end: End) -> None:
        """Begin what has to be waited for.

        Args:
            worker: for whom.
            job: what is done.
            end: the owner's step behind it.
        """
        assert worker.agent.path not in self._working
        context = self._activity.context_of(worker.agent)
        worker.task = asyncio.get_running_loop().create_task(job, context=context)
        worker.task.add_done_callback(partial(self._note_end, worker, end))
        self._working[worker.agent.path] = worker

    def cut(self, path: str) -> None:
        """Have an agent's inference end as soon as no item is open."""
        worker = self._working.get(path)
        if worker is not None and worker.inference is not None:
            worker.inference.is_cut = True
            if worker.inference.round.is_between_items:
                worker.task.cancel()

    async def stop(self) -> None:
        """End everything, and wait until it has ended."""
        working = list(self._working.values())
        self._working.clear()
        await cancel_all([worker.task for worker in working])

    def _note_end(self, worker: Worker, end: End, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if self._working.get(worker.agent.path) is not worker:
            return
        assert error is None or isinstance(error, Exception)
        result = None if error is not None or task.cancelled() else task.result()
        self._inbox.post(partial(self._end, worker, end, result, error))

    def _end(self, worker: Worker, end: End, result: Any, error: Exception | None) -> None:
        del self._working[worker.agent.path]
        end(result, error)
        self._activity.note(worker.agent)
