"""A process that appends responses from eight tasks and prints each id once it is stored: URL PRINCIPAL LIMIT."""

import asyncio
import os
import sys

from gateway.ports import StoredItem, StoredResponse
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.store import SqlStore


async def main(url: str, principal: str, limit: int) -> None:
    store = SqlStore(StoreSettings(url=database_url(url), busy_timeout_seconds=30))
    await store.start()
    numbers = iter(range(limit))

    async def append() -> None:
        parent = None
        for number in numbers:
            items = [
                StoredItem(role=role, type="message", id="msg", data=b"{}") for role in ("input", "output", "output")
            ]
            response = StoredResponse(
                id=f"resp_{os.getpid()}_{number}",
                principal=principal,
                status="completed",
                model="m",
                created_at=1,
                snapshot=b"{}",
                items=items,
                parent_id=parent,
            )
            await store.append(response)
            print(response.id, flush=True)
            parent = response.id

    await asyncio.gather(*(append() for _ in range(8)))
    await store.close()


asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
