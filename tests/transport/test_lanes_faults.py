"""A connection that ends while somebody waits for its client, and the moments in which two things meet."""

import asyncio
import logging

import pytest
from engine.doubles import Bench, Reply, settle, streamed
from harness.engine import says
from transport.client_socket import converse, held, until

from gateway.telemetry.logs import response_id_var


async def test_an_error_that_waits_for_its_client_does_not_outlive_it():
    async with converse(delivery_max_batches=1) as talk:
        talk.socket.pause()
        for _ in range(3):
            talk.socket.say("{")
        await settle()
        assert talk.bench.metrics.delivery_load.batches.now == 1
        talk.socket.leave()
        await talk.task


@pytest.mark.parametrize("progress_seconds", [0, 0.05])
async def test_a_beginning_that_waits_for_its_client_does_not_outlive_it(progress_seconds):
    bench = Bench(server={"commit_after_seconds": 0.05})
    async with converse(bench, delivery_max_batches=1, progress_seconds=progress_seconds) as talk:
        talk.socket.pause()
        talk.socket.say("{")
        talk.create(Reply(accept=asyncio.Event()), lane="a")
        await until(lambda: talk.load() == (1, 0))
        # The early beginning waits in the queue, behind the error.
        await asyncio.sleep(0.15)
        talk.socket.leave()
        await talk.task


async def test_a_client_that_has_not_taken_its_answer_is_not_idle():
    async with converse(idle_timeout_seconds=0.05) as talk:
        talk.create(streamed(says("1")))
        await talk.ended()
        talk.socket.pause()
        talk.create(streamed(says("2")))
        await until(lambda: talk.bench.metrics.delivery_load.batches.now > 0 and talk.load() == (0, 0))
        await asyncio.sleep(0.2)
        assert talk.socket.close_code is None
        reply = held()
        talk.create(reply)
        await settle()
        talk.socket.resume()
        await asyncio.sleep(0.2)
        assert (talk.socket.close_code, talk.load()) == (None, (1, 0))


async def test_a_lifetime_ends_although_its_client_floods_and_takes_nothing():
    bounds = {"lifetime_seconds": 0.05, "lifetime_grace_seconds": 0.05, "send_deadline_seconds": 0.1}
    async with converse(delivery_max_batches=1, **bounds) as talk:
        talk.create(held(), lane="a")
        await talk.begun("a")
        talk.socket.pause()
        for _ in range(20):
            talk.create(lane="a")
        assert (await talk.closed())[0] == 1000


async def test_others_have_their_turn_while_a_backlog_is_read():
    turns = 0

    def count():
        nonlocal turns
        turns += 1
        asyncio.get_running_loop().call_soon(count)

    async with converse() as talk:
        count()
        for _ in range(1000):
            talk.socket.say({"type": "response.processed"})
        talk.socket.say("{")
        await until(lambda: talk.socket.frames)
        assert turns > 1000 / 100


class Ids(logging.Handler):
    """Notes what each line says and which response it is about, as the log does when it writes the line."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    def emit(self, record):
        self.seen[record.getMessage()] = response_id_var.get()


async def test_a_create_that_is_started_by_the_end_of_another_does_not_log_under_its_id(caplog):
    caplog.set_level("INFO")
    ids = Ids()
    logging.getLogger().addHandler(ids)
    try:
        async with converse() as talk:
            talk.create(streamed(says("1")), tools=[{"type": "web_search"}])
            talk.create(model="")
            await until(lambda: talk.socket.frames and talk.socket.frames[-1]["type"] == "error")
    finally:
        logging.getLogger().removeHandler(ids)
    assert ids.seen["tools of a create were left out, because they cannot be run"] is not None
    assert ids.seen["an error frame"] is None


async def test_nothing_starts_for_a_client_that_has_closed_its_half():
    async with converse() as talk:
        talk.create(held(), lane="a")
        await talk.begun("a")
        talk.create(lane="a")
        # It is known to be gone before the connection ends.
        talk.connection._leave()
        await settle(50)
        assert (len(talk.bench.upstream.calls), talk.connection._tasks) == (1, {})
        talk.socket.leave()
        await talk.task
