"""A connection that ends while somebody waits for its client, and the moments in which two things meet."""

import asyncio

import pytest
from engine.doubles import Bench, Reply, settle, streamed
from harness.engine import says
from transport.client_socket import converse, held, until


async def test_an_error_that_waits_for_its_client_does_not_outlive_it():
    async with converse(delivery_max_batches=1) as talk:
        talk.socket.pause()
        for _ in range(3):
            talk.socket.say("{")
        await settle()
        assert talk.bench.metrics.delivery_load.batches == 1
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
        await until(lambda: talk.bench.metrics.delivery_load.batches > 0 and talk.load() == (0, 0))
        await asyncio.sleep(0.2)
        assert talk.socket.close_code is None
        reply = held()
        talk.create(reply)
        await settle()
        talk.socket.resume()
        await asyncio.sleep(0.2)
        assert (talk.socket.close_code, talk.load()) == (None, (1, 0))
