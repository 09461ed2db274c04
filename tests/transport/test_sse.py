"""The event stream of one response, and clients that leave it."""

import asyncio

import pytest
from conformance.verdict import judge_stream
from engine.doubles import Bench, Reply, refusal, settle, streamed
from harness.engine import frame, says
from transport.asgi import Conversation

from gateway.protocol.errors import UpstreamRefused
from gateway.protocol.sse import DONE, KEEPALIVE
from gateway.transport.connection import ClientLeft, ClientWatch, find_connection
from gateway.transport.sse import EventStream

HELLO = says("Hello there", chunk=5)


class Stream:
    """An event stream on an engine whose parts are scripted."""

    def __init__(self, *replies, **server):
        self.bench = Bench(*replies, server=server)

    async def __call__(self, scope, receive, send):
        self.task = asyncio.current_task()
        plan = await self.bench.plan("local", "sse", stream=True)
        connection = find_connection(scope)
        self.stream = EventStream(connection, send, [(b"x-own", b"1")], self.bench.config.server, self.bench.metrics)
        try:
            async with ClientWatch(connection, self.stream.queue.resume):
                await self.bench.engine.stream(plan, self.stream)
        finally:
            self.stream.close()

    def begin(self, **options):
        client = Conversation(**options)
        return client, asyncio.create_task(client.serve(self))

    async def ends_with_a_client_that_left(self, serving):
        """Wait for the end; the upstream call, the queue and its gauges have ended with it."""
        with pytest.raises(ClientLeft):
            await serving
        assert self.stream.queue.statistics.batches == 0
        assert self.bench.sample("delivery_queue_batches") == self.bench.sample("delivery_queue_bytes") == 0


async def test_what_one_read_of_the_upstream_yields_leaves_in_one_send():
    first, *rest, last = HELLO.frames()
    more, end = asyncio.Event(), asyncio.Event()
    client, serving = Stream(Reply([first, more, b"".join(rest), end, last])).begin()
    await client.until_sent(b"response.in_progress")
    more.set()
    await client.until_sent(b"content_part.done")
    end.set()
    await serving
    assert judge_stream(client.body) == []
    assert client.headers["x-own"] == "1"
    assert [body.count(b"event: ") for body in client.bodies] == [2, len(rest) - 2, 2]


async def test_the_last_batch_and_the_done_marker_leave_in_one_send():
    client = Conversation()
    await client.serve(Stream(streamed(HELLO)))
    assert client.bodies[-1].count(b"event: response.completed") == 1
    assert client.bodies[-1].endswith(b"\n\n" + DONE)
    assert [message["more_body"] for message in client.sent[1:]] == [True] * (len(client.bodies) - 1) + [False]


async def test_a_whole_answer_in_one_read_is_one_send():
    client = Conversation()
    await client.serve(Stream(streamed(HELLO, at_once=True)))
    assert len(client.bodies) == 1
    assert judge_stream(client.body) == []


async def test_a_stream_that_fails_ends_like_any_other():
    client = Conversation()
    broken = frame({"type": "error", "error": {"message": "Broke.", "code": "engine_dead"}})
    await client.serve(Stream(Reply([*HELLO.frames()[:5], broken])))
    assert judge_stream(client.body) == []
    assert b"event: response.failed" in client.bodies[-1]
    assert client.bodies[-1].endswith(DONE)


async def test_a_failure_before_the_first_event_is_left_to_the_caller():
    client = Conversation()
    with pytest.raises(UpstreamRefused):
        await client.serve(Stream(Reply(error=refusal())))
    assert client.sent == []


async def test_silence_is_filled_with_keepalives():
    more = asyncio.Event()
    frames = HELLO.frames()
    client, serving = Stream(Reply([*frames[:5], more, *frames[5:]]), keepalive_seconds=0.01).begin()
    await client.until_sent(KEEPALIVE * 2)
    more.set()
    await serving
    assert judge_stream(client.body) == []


async def test_keepalives_begin_with_the_answer():
    accept = asyncio.Event()
    stream = Stream(Reply(HELLO.frames(), accept=accept), keepalive_seconds=0.01, commit_after_seconds=0.05)
    client, serving = stream.begin()
    await client.until_sent(KEEPALIVE)
    assert client.bodies[0].startswith(b"event: response.created")
    accept.set()
    await serving
    assert judge_stream(client.body) == []


# ---------------------------------------------------------------- clients that leave


@pytest.mark.checklist(25)
@pytest.mark.parametrize("steps", [0, 5], ids=["before the first event", "in the middle"])
async def test_a_client_that_leaves_ends_the_upstream_call(steps):
    reply = Reply([*HELLO.frames()[:steps], asyncio.Event()])
    stream = Stream(reply)
    client, serving = stream.begin()
    await settle(50)
    assert bool(client.sent) == bool(steps)
    client.gone.set()
    await stream.ends_with_a_client_that_left(serving)
    assert (reply.closed, client.complete) == (1, False)


async def test_a_client_that_leaves_before_the_upstream_accepts():
    stream = Stream(Reply(accept=asyncio.Event()))
    client, serving = stream.begin()
    await settle()
    client.gone.set()
    await stream.ends_with_a_client_that_left(serving)
    assert client.sent == []


async def test_a_client_that_leaves_while_a_send_and_the_upstream_wait_for_it():
    reply = streamed(says("x" * 1000, chunk=1))
    stream = Stream(reply, delivery_max_batches=2)
    client, serving = stream.begin()
    await client.until_sent(b"response.created")
    client.reads.clear()
    sent = len(client.sent)
    await settle(1000)
    assert (len(client.sent) - sent, stream.stream.queue.statistics.batches) == (0, 2)
    client.gone.set()
    await stream.ends_with_a_client_that_left(serving)
    assert reply.closed == 1


async def test_a_client_that_leaves_with_the_last_byte_has_not_left_early():
    client, serving = Stream(streamed(HELLO)).begin()
    await client.until_sent(DONE)
    client.gone.set()
    await serving
    assert client.complete


async def test_a_slow_client_gets_everything_once_it_reads():
    stream = Stream(streamed(says("x" * 100, chunk=1)), delivery_max_batches=2)
    client, serving = stream.begin()
    await client.until_sent(b"response.created")
    client.reads.clear()
    await settle(100)
    assert not serving.done()
    client.read_on()
    await serving
    assert judge_stream(client.body) == []
    assert client.body.endswith(DONE)


async def test_a_run_that_is_stopped_from_outside_is_no_complete_stream():
    reply = Reply([*HELLO.frames()[:5], asyncio.Event()])
    client, serving = Stream(reply).begin()
    await client.until_sent(b"Hello")
    serving.cancel()
    await asyncio.wait([serving])
    assert (serving.cancelled(), client.complete, reply.closed) == (True, False, 1)
