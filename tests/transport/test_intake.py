import asyncio
from contextvars import ContextVar

import pytest

from gateway.protocol.errors import InvalidRequest
from gateway.protocol.frames import FrameError
from gateway.telemetry.metrics import Metrics
from gateway.transport.inbox import Inbox
from gateway.transport.intake import FrameRules, Intake

reader = ContextVar[str]("reader", default="none")


def create(model):
    return f'{{"type": "response.create", "model": "{model}"}}'


class Client:
    """The socket of a client, and all that its reader calls."""

    def __init__(self):
        self.metrics = Metrics()
        self.inbox = Inbox()
        self.accepted, self.refused, self.noted = [], [], 0
        self.bars = set()
        rules = FrameRules(max_depth=10, default_model=None, injects=False)
        self.intake = Intake(self, rules, self, self.metrics)

    async def read(self, take=None):
        return (await self.inbox.read(take)).get("text")

    def note_message(self):
        self.noted += 1

    def accept(self, frame, size):
        model = frame.body["model"]
        if model in self.bars:
            raise FrameError(InvalidRequest("It may not be."))
        self.accepted.append((model, size, reader.get()))

    async def refuse(self, refusal):
        self.refused.append(refusal.error.message)

    async def say(self, text):
        """Send a message, as the protocol does; tells whether it was taken on the spot."""
        taken = self.inbox.offer(text)
        if not taken:
            self.inbox.put_nowait({"type": "websocket.receive", "text": text})
            for _ in range(5):
                await asyncio.sleep(0)
        return taken

    @property
    def counted(self):
        self.metrics.refresh()
        return self.metrics.websocket_message_bytes.read().count

    async def serve(self):
        reader.set("its own")
        await self.intake.run(self.accept, self.refuse)


@pytest.fixture
async def client():
    client = Client()
    serving = asyncio.create_task(client.serve())
    await asyncio.sleep(0)
    yield client
    client.inbox.put_nowait({"type": "websocket.disconnect"})
    await serving


async def test_what_comes_while_nothing_waits_is_taken_on_the_spot_as_if_it_had_been_read(client):
    assert await client.say(create("a"))
    client.inbox.put_nowait({"type": "websocket.receive", "text": create("b")})
    assert not await client.say(create("c"))
    assert await client.say(create("d"))
    size = len(create("a"))
    assert client.accepted == [(model, size, "its own") for model in "abcd"]
    assert (client.noted, client.counted) == (4, 4)


@pytest.mark.parametrize("text", [create("barred"), "{", '{"type": "unheard.of"}'])
async def test_what_is_refused_is_read_and_refused_and_counted_once(client, text):
    client.bars.add("barred")
    assert not await client.say(text)
    assert (len(client.refused), client.noted, client.counted) == (1, 1, 1)
    assert await client.say(create("a"))
    assert [model for model, _, _ in client.accepted] == ["a"]
