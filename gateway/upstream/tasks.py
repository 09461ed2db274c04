"""Ending tasks for certain."""

import asyncio

_PATIENCE_SECONDS = 0.5


async def end_task(task: asyncio.Task[None]) -> None:
    """Cancel the task and return when it is done, whatever it ends with.

    A cancellation may be lost, as one is that meets a timeout in the same tick; so it is asked for again.
    """
    while not task.done():
        task.cancel()
        await asyncio.wait({task}, timeout=_PATIENCE_SECONDS)
