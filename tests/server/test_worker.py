"""How a worker obeys its parent; what it does with its whole life is shown by tests/integration/test_workers.py."""

import asyncio
import json
import socket

import msgspec
import pytest

from gateway.app import Gateway, StartError, build_parts
from gateway.config.schema import GatewayConfig
from gateway.server.messages import Failed, Task
from gateway.server.worker import _Link, _say_last, _work
from gateway.storage.memory import MemoryStore


class Server:
    """Counts what it is told."""

    def __init__(self):
        self.stops = 0
        self.reasons = []
        self.changed = asyncio.Event()

    def stop(self, reason):
        self.stops += 1
        self.reasons.append(reason)
        self.changed.set()


class Reloader:
    def __init__(self):
        self.asked = asyncio.Event()

    def request(self):
        self.asked.set()


class Parent:
    """The other end of the connection."""

    def __init__(self, reader, writer):
        self._reader = reader
        self._writer = writer

    def say(self, kind, **fields):
        self._writer.write(json.dumps({"type": kind, **fields}).encode() + b"\n")

    async def hear(self):
        return json.loads(await asyncio.wait_for(self._reader.readline(), 20))

    def leave(self):
        self._writer.close()


@pytest.fixture
async def parent():
    """A parent, the server, the reloader and the link of a worker that obeys it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reader, writer = await asyncio.open_unix_connection(sock=ours)
    gateway = Gateway(build_parts(GatewayConfig(), store=MemoryStore()))
    server, reloader = Server(), Reloader()
    link = _Link(theirs, gateway)
    async with link.obeying(server, reloader):
        yield Parent(reader, writer), server, reloader, link
    writer.close()
    theirs.close()


async def test_it_says_when_it_serves(parent):
    told, _, _, link = parent
    link.say_serving()
    assert await told.hear() == {"type": "Serving"}


async def test_a_signal_of_its_own_and_the_parents_word_are_one_stop(parent):
    told, server, _, _ = parent
    server.stop("SIGTERM")
    told.say("Stop", urgency=1, reason="SIGTERM")
    told.say("Stop", urgency=3, reason="SIGINT")
    async with asyncio.timeout(5):
        while server.stops < 3:
            server.changed.clear()
            await server.changed.wait()
    assert server.reasons == ["SIGTERM", "SIGINT", "SIGINT"]


async def test_it_reads_its_configuration_again(parent):
    told, _, reloader, _ = parent
    told.say("ReadAgain")
    await asyncio.wait_for(reloader.asked.wait(), 20)


async def test_it_answers_questions(parent):
    told, *_ = parent
    told.say("Ask", number=7, about="metrics")
    assert await told.hear() == {"type": "Answer", "number": 7, "body": None}
    told.say("Ask", number=8, about="readiness")
    answer = await told.hear()
    assert answer["number"] == 8
    assert [check["name"] for check in answer["body"]["checks"]] == ["draining", "storage", "upstream default"]


async def test_without_its_parent_it_stops(parent):
    told, server, _, _ = parent
    told.leave()
    await asyncio.wait_for(server.changed.wait(), 20)
    assert server.reasons == ["the parent process has ended"]


async def test_a_stop_that_runs_is_not_cut_short_because_the_parent_ends(parent):
    told, server, _, _ = parent
    server.stop("SIGTERM")
    told.leave()
    (obeying,) = (task for task in asyncio.all_tasks() if task.get_name() == "orders")
    await asyncio.wait_for(obeying, 20)
    assert server.stops == 1


def test_a_version_that_was_installed_meanwhile_is_not_mixed_in():
    task = Task(
        version="0.0.1",
        number=1,
        control=-1,
        listener=-1,
        folder="",
        config=msgspec.Raw(b"{}"),
        file=None,
        overrides=(),
        wait_upstream=None,
    )
    with socket.socket() as unused, pytest.raises(StartError, match=r"while 0\.0\.1 is running; restart the gateway"):
        _work(task, unused, unused)


def test_last_words_reach_a_parent_that_listens_and_no_other():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.setblocking(False)
        _say_last(theirs, Failed("no database"))
        assert json.loads(ours.recv(1000)) == {"type": "Failed", "reason": "no database"}
        ours.close()
        _say_last(theirs, Failed("no database"))
