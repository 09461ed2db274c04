"""An inference server that says the first half of an answer, and the second when a test lets it."""

import asyncio
import threading

from harness.engine import Answer, message
from harness.upstream import Reply, Request

FIRST, SECOND = "The first half, ", "and the second."


class Paced:
    """Scripts by model: `held` waits before it says anything, `half` in the middle, any other not at all.

    Attributes:
        go_on: set it, and whatever waits goes on.
        calls: how many calls of each model there were.
    """

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.calls: dict[str, int] = {}

    async def __call__(self, request: Request, reply: Reply) -> None:
        model = request.body["model"]
        self.calls[model] = self.calls.get(model, 0) + 1
        frames = Answer([message(FIRST + SECOND)], deltas=[[FIRST, SECOND]]).frames()
        await reply.head()
        if model.startswith("held"):
            await self._wait()
        for frame in frames:
            if model.startswith("half") and SECOND.encode() in frame:
                await self._wait()
            await reply.send(frame)
        await reply.end()

    async def _wait(self) -> None:
        while not self.go_on.is_set():
            await asyncio.sleep(0.01)
