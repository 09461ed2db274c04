"""What a run tells its client, beside what others tell it in the meantime."""

import asyncio
from types import SimpleNamespace

from gateway.engine.telling import Telling


class Box(list):
    """Keeps events, and takes them as batches."""

    def add(self, event):
        self.append(event)

    def pause(self):
        pass

    def take(self):
        batch = list(self)
        self.clear()
        return batch


class SlowClient:
    """A client that takes one batch each time it reads."""

    opened = True

    def __init__(self):
        self.told = []
        self._reads = asyncio.Queue()

    def read(self):
        self._reads.put_nowait(None)

    def write(self, batch):
        return False

    async def put(self, batch):
        await self._reads.get()
        self.told += batch


async def test_what_is_told_aside_just_when_an_earlier_aside_has_left_is_waited_for_as_well():
    client = SlowClient()
    turn = SimpleNamespace(open_round=lambda: None, tell=lambda event: [event])
    telling = Telling(turn, Box(), SimpleNamespace(looks=False))
    telling.channel, telling.takes_asides = client, True
    telling.tell_aside("first")
    telling.keep(["own"])
    telling.early.add_done_callback(lambda _: telling.tell_aside("second"))
    sending = asyncio.create_task(telling.send())
    for reads in (0, 2, 1):
        for _ in range(reads):
            client.read()
        for _ in range(10):
            await asyncio.sleep(0)
    await sending
    assert client.told == ["first", "own", "second"]
