"""Background responses on an engine whose parts are scripted and a database of their own."""

import asyncio
import contextvars
import json

import pytest
from conformance.verdict import judge_stream
from engine.doubles import LONG, Bench, Listener, Reply, streamed, text_of, types
from harness.engine import Answer, message, says
from msgspec import structs
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.app.background import build_background
from gateway.config.schema import BackgroundConfig
from gateway.engine import event_log
from gateway.ports import Claim, EventBatch, Lease, RunBegin, RunLog, RunStart, RunTakeover
from gateway.protocol import codec, recorded, sse
from gateway.protocol.errors import InvalidRequest, NotFound, RateLimitExceeded, StorageUnavailable, Unavailable
from gateway.protocol.response import EncodedResponse
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.store import SqlStore
from gateway.telemetry.tracing import Tracing

HELLO = says("Hello there")
FAST = {"flush_interval_seconds": 0.0, "heartbeat_seconds": 0.01, "poll_interval_seconds": 0.01}


class Stage:
    """One process that makes background responses, or several on one database."""

    def __init__(self, store, *replies, tracing=None, **settings):
        self.store = store
        self.bench = Bench(*replies, store=store, tracing=tracing)
        config = structs.replace(self.bench.config, background=BackgroundConfig(**{**FAST, **settings}))
        bench = self.bench
        self.background = build_background(config, store, bench.engine, bench.clock, bench.metrics, bench.tracing)

    async def submit(self, principal="local", **fields):
        given = {"background": True, **fields}
        plan = await self.bench.plan(principal, "background", **given)
        body = json.dumps({"model": "m", "input": "hi", **given}).encode()
        return json.loads(await self.background.submit(plan, body))

    async def abandon(self, *, stream=True, starts=0, told=False, **fields):
        """Store a response that a process had which is gone; returns its id."""
        plan = await self.bench.plan("local", "background", background=True, stream=stream)
        first = [codec.encode(event) for event in plan.turn.enqueue()]
        committer = self.bench.engine.committer
        record = committer.record(
            "local", EncodedResponse(plan.turn.response), committer.list_input(plan.inputs), plan.lineage
        )
        body = json.dumps({"model": "m", "input": "hi", "background": True, "stream": stream, **fields}).encode()
        batch = EventBatch(first=0, count=2, data=recorded.join(first)) if stream else None
        runs = self.store.background
        await runs.begin(RunBegin(response=record, request=body, holder="background/gone", batch=batch))
        claim = Claim(response_id=record.id, attempt=1)
        for _ in range(starts):
            await runs.start(RunStart(claim=claim, snapshot=record.snapshot))
        if told:
            data = b'{"type":"response.output_item.added","sequence_number":2}'
            await runs.log(RunLog(claim=claim, batch=EventBatch(first=2, count=1, data=data), told=True))
        return record.id

    async def read(self, response_id):
        return json.loads(await self.bench.engine.retrieve("local", response_id))

    async def ended(self, response_id):
        async with asyncio.timeout(LONG):
            while (found := await self.read(response_id))["status"] in {"queued", "in_progress"}:
                await asyncio.sleep(0.005)
        await self.idle()
        return found

    async def idle(self):
        """Until nothing is made here any more."""
        async with asyncio.timeout(LONG):
            while self.bench.metrics.background_load.running.now:
                await asyncio.sleep(0.005)

    async def status(self, response_id, wanted):
        async with asyncio.timeout(LONG):
            while (await self.read(response_id))["status"] != wanted:
                await asyncio.sleep(0.005)

    async def follow(self, response_id, after=-1):
        listener = Listener()
        follow = self.background.replay.follow("local", response_id, after, listener)
        listener.task = asyncio.create_task(follow)
        return await listener.take_all()


@pytest.fixture
async def stage(tmp_path):
    """Makes stages on one database; all are closed in the end."""
    made, store = [], SqlStore(StoreSettings(url=database_url(f"sqlite:///{tmp_path}/responses.db")))
    await store.start()

    def make(*replies, **settings):
        made.append(Stage(store, *replies, **settings))
        return made[-1]

    yield make
    for one in made:
        await one.background.close()
    await store.close()


def held(*steps):
    """A reply that says its head and first half, and waits for the event before the rest."""
    event = asyncio.Event()
    frames = Answer([message("Hello there")], deltas=[["Hello ", "there"]]).frames()
    cut = next(place for place, frame in enumerate(frames) if b'"there"' in frame)
    return Reply([*frames[:cut], event, *frames[cut:]]), event


# ---------------------------------------------------------------- in turn


@pytest.mark.checklist(518)
async def test_only_so_many_run_and_wait(stage):
    first, go_on = held()
    one = stage(first, streamed(HELLO), max_running=1, max_queued=1)
    made = [(await one.submit())["id"] for _ in range(2)]
    await one.status(made[0], "in_progress")
    load = one.bench.metrics.background_load
    assert (load.running.now, load.queued.now, one.bench.engine.active) == (1, 1, 2)
    with pytest.raises(RateLimitExceeded) as refused:
        await one.submit()
    assert (refused.value.bound, refused.value.retry_after) == ("background.max_queued", 1.0)
    assert (await one.read(made[1]))["status"] == "queued"
    go_on.set()
    for response_id in made:
        assert text_of(await one.ended(response_id)) == "Hello there"
    assert (load.running.now, load.queued.now, one.bench.engine.active) == (0, 0, 0)
    assert one.bench.sample("responses_total", transport="background", status="completed") == 2


async def test_one_that_waits_is_cancelled_without_any_inference(stage):
    first, go_on = held()
    one = stage(first, max_running=1)
    running, waiting = [(await one.submit(stream=True))["id"] for _ in range(2)]
    answer = json.loads(await one.background.cancel("local", waiting))
    assert (answer["status"], answer["output"]) == ("cancelled", [])
    told = await one.follow(waiting)
    assert types(told) == ["created", "queued", "incomplete"]
    assert told[-1]["response"] == answer
    go_on.set()
    await one.ended(running)
    assert len(one.bench.upstream.calls) == 1


async def test_one_that_is_cancelled_before_its_task_begins_ends_all_the_same(stage):
    one = stage(HELLO)
    conversations = one.bench.engine.conversations
    held = json.loads(await conversations.create("local", {}))["id"]
    queued = await one.submit(conversation=held)
    one.background.drop(queued["id"])
    assert (await one.ended(queued["id"]))["status"] == "cancelled"
    assert one.bench.upstream.calls == []
    await conversations.add("local", held, {"items": [{"role": "user", "content": "free"}]})


async def test_one_that_is_given_up_before_its_task_begins_is_taken_over(stage):
    one = stage(streamed(HELLO))
    queued = await one.submit()
    one.background._jobs[queued["id"]].give_up()
    await one.background.start()
    assert (await one.ended(queued["id"]))["status"] == "completed"


async def test_switched_off_or_draining_it_is_refused(stage):
    one = stage(enabled=False)
    with pytest.raises(InvalidRequest) as refused:
        await one.submit()
    assert (refused.value.param, refused.value.code) == ("background", "unsupported_parameter")
    two = stage()
    two.background.begin_drain()
    with pytest.raises(Unavailable):
        await two.submit()


@pytest.mark.checklist(518)
async def test_one_that_takes_too_long_ends_as_failed(stage):
    first, _ = held()
    one = stage(first, lifetime_seconds=1.0)
    made = await one.ended((await one.submit(stream=True))["id"])
    assert made["status"] == "failed"
    assert "[background] lifetime_seconds" in made["error"]["message"]
    assert text_of(made) == "Hello "
    assert first.closed


@pytest.mark.checklist(518)
async def test_too_many_bytes_of_events_end_it_as_failed(stage):
    one = stage(streamed(HELLO), max_event_bytes=1500)
    made = await one.ended((await one.submit(stream=True))["id"])
    assert (made["status"], made["error"]["code"]) == ("failed", "response_resource_limit_exceeded")
    assert "[background] max_event_bytes" in made["error"]["message"]
    assert (await one.follow(made["id"]))[-1]["type"] == "response.failed"


async def test_an_upstream_that_fails_ends_it_as_failed_and_stored(stage):
    one = stage(Reply([b"data: rubbish\n\n"]))
    made = await one.ended((await one.submit())["id"])
    assert (made["status"], made["error"]["code"]) == ("failed", "upstream_invalid_event")
    assert made["completed_at"] is None


# ---------------------------------------------------------------- events


@pytest.mark.checklist(508)
async def test_events_are_kept_for_a_while_and_the_response_longer(stage):
    one = stage(streamed(HELLO), event_retention_seconds=60)
    await one.background.start()
    made = await one.ended((await one.submit(stream=True))["id"])
    told = await one.follow(made["id"])
    assert judge_stream(b"".join(sse.frame(e["type"].encode(), json.dumps(e).encode()) for e in told) + sse.DONE) == []
    assert await one.background.replay.check("local", made["id"])
    one.bench.clock.seconds += 61
    async with asyncio.timeout(LONG):
        while not (await one.store.background.state("local", made["id"])).swept:
            await asyncio.sleep(0.005)
    with pytest.raises(NotFound) as gone:
        await one.background.replay.check("local", made["id"])
    assert gone.value.code == "response_events_not_found"
    assert await one.read(made["id"]) == made


class Reader(Listener):
    """A client whose answer may end with nothing further to tell."""

    def _take(self, batch):
        if batch:
            super()._take(batch)


async def test_only_so_many_read(stage):
    first, _ = held()
    one = stage(first, max_readers=2)
    queued = await one.submit(stream=True)
    reading = [asyncio.create_task(one.follow(queued["id"])) for _ in range(2)]
    while one.bench.metrics.background_readers.now < 2:
        await asyncio.sleep(0)
    with pytest.raises(RateLimitExceeded) as refused:
        await one.background.replay.check("local", queued["id"])
    assert refused.value.bound == "background.max_readers"
    await one.background.cancel("local", queued["id"])
    await asyncio.gather(*reading)
    assert await one.background.replay.check("local", queued["id"])


async def test_a_reader_of_a_deleted_response_comes_to_an_end(stage):
    first, _ = held()
    one = stage(first)
    made = (await one.submit(stream=True))["id"]
    await one.status(made, "in_progress")
    reader = Reader()
    reader.task = asyncio.create_task(one.background.replay.follow("local", made, 0, reader))
    await reader.take_until_silent()
    await one.bench.engine.delete("local", made)
    one.background.drop(made)
    # What was on its way may still be told, but no end.
    assert not {"response.completed", "response.incomplete", "response.failed"} & {
        event["type"] for event in await reader.take_all()
    }
    await one.idle()
    assert first.closed


class Breaking:
    """The database of background responses, which fails as often as a test says."""

    def __init__(self, runs, **failures):
        self._runs = runs
        self.failures = failures

    def __getattr__(self, name):
        inner = getattr(self._runs, name)

        async def call(*given, **named):
            if self.failures.get(name, 0):
                self.failures[name] -= 1
                raise StorageUnavailable("The database is away.")
            return await inner(*given, **named)

        return call


@pytest.mark.checklist(520)
async def test_an_outage_loses_no_event_and_no_end(stage, monkeypatch):
    monkeypatch.setattr(event_log, "_RETRY_SECONDS", 0.0)
    one = stage(streamed(HELLO))
    one.store.background = Breaking(one.store.background, log=2, end=2)
    two = stage(streamed(HELLO))
    made = await two.ended((await two.submit(stream=True))["id"])
    assert (made["status"], one.store.background.failures) == ("completed", {"log": 0, "end": 0})
    told = await two.follow(made["id"])
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert told[-1]["response"] == made


@pytest.mark.checklist(520)
async def test_what_could_not_be_stored_at_all_is_made_anew(stage, monkeypatch):
    monkeypatch.setattr(event_log, "_RETRY_SECONDS", 0.0)
    stage()
    one = stage(streamed(HELLO), streamed(says("Again")))
    runs = one.store.background
    one.store.background = Breaking(runs, start=1)
    two = stage(streamed(HELLO))
    await two.background.start()
    made = await two.submit()
    assert text_of(await two.ended(made["id"])) == "Hello there"
    assert two.bench.sample("background_recovered_total", outcome="restarted") == 1


async def test_the_trace_of_one_is_its_own_and_linked_to_its_request(stage):
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    one = stage(streamed(HELLO), tracing=Tracing(provider))

    async def serve():
        with one.bench.tracing.start_request("POST", {}):
            return await one.submit()

    made = await asyncio.create_task(serve(), context=contextvars.Context())
    await one.ended(made["id"])
    spans = {span.name: span for span in exporter.get_finished_spans()}
    asked, ran = spans["POST"].get_span_context(), spans["response.background"]
    assert [(link.context.trace_id, link.context.span_id) for link in ran.links] == [(asked.trace_id, asked.span_id)]
    assert ran.parent is None
    assert ran.context.trace_id != asked.trace_id
    assert spans["invoke_agent"].parent.span_id == ran.context.span_id
    sent = one.bench.upstream.calls[0].headers["traceparent"]
    assert f"{ran.context.trace_id:032x}" in sent


class Halting:
    """The database of background responses, which holds the first end up, before or after it is stored."""

    def __init__(self, runs, *, stored):
        self._runs = runs
        self._stored = stored
        self.reached = asyncio.Event()

    def __getattr__(self, name):
        return getattr(self._runs, name)

    async def end(self, end):
        first = not self.reached.is_set()
        if not first or self._stored:
            ended = await self._runs.end(end)
        if first:
            self.reached.set()
            await asyncio.Event().wait()
        return ended


@pytest.mark.checklist(511)
@pytest.mark.parametrize(("stored", "status"), [(True, "completed"), (False, "cancelled")])
async def test_a_cancel_during_the_commit_is_one_thing_for_everybody(stage, stored, status):
    first = stage()
    first.store.background = halting = Halting(first.store.background, stored=stored)
    one = stage(streamed(HELLO))
    made = (await one.submit(stream=True))["id"]
    await asyncio.wait_for(halting.reached.wait(), LONG)
    answer = json.loads(await one.background.cancel("local", made))
    # Where the end was stored already, a cancel that is noticed only now comes too late.
    one.background.drop(made)
    await one.idle()
    assert (answer["status"], text_of(answer)) == (status, "Hello there")
    assert answer == await one.read(made)
    told = await one.follow(made)
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert told[-1]["response"] == answer


async def test_an_inference_waits_while_its_events_are_stored(stage):
    one = stage(streamed(Answer([message("word " * 40)], chunk=5)), flush_bytes=1)
    made = await one.ended((await one.submit(stream=True))["id"])
    batches = await one.store.background.events("local", made["id"], -1, limit=1000)
    assert len(batches) > 10
    assert text_of(made) == "word " * 40
    assert (await one.follow(made["id"]))[-1]["response"] == made


async def test_a_process_with_nothing_to_make_holds_no_lease(stage):
    one = stage(streamed(HELLO))
    await one.background.start()
    await one.ended((await one.submit())["id"])
    async with asyncio.timeout(LONG):
        while one.background._held:
            await asyncio.sleep(0.005)
    other = Lease(name=one.background._lease.name, holder="other")
    assert await one.store.leases.acquire(other, 1)


# ---------------------------------------------------------------- others


@pytest.mark.checklist(513)
@pytest.mark.parametrize("stream", [False, True])
async def test_one_without_output_is_begun_anew_under_its_id(stage, stream):
    one = stage(streamed(HELLO))
    left = await one.abandon(stream=stream, starts=1)
    await one.background.start()
    made = await one.ended(left)
    assert (made["id"], made["status"], text_of(made)) == (left, "completed", "Hello there")
    if stream:
        told = await one.follow(left)
        assert types(told)[:3] == ["created", "queued", "in_progress"]
        assert [event["sequence_number"] for event in told] == list(range(len(told)))
        assert told[-1]["response"] == made


@pytest.mark.checklist(513, 514)
@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"told": True}, "after it had told a part of it"),
        ({"starts": 3}, "[background] max_attempts"),
        ({"temperature": 9}, "temperature"),
    ],
    ids=["told", "often begun", "refused now"],
)
async def test_one_that_cannot_be_begun_anew_ends_as_failed(stage, given, words):
    one = stage()
    left = await one.abandon(**given)
    await one.background.start()
    made = await one.ended(left)
    assert made["status"] == "failed"
    assert words in made["error"]["message"]
    told = await one.follow(left)
    assert (told[-1]["type"], told[-1]["response"]) == ("response.failed", made)
    assert not one.bench.upstream.calls


async def test_one_that_is_too_old_is_not_begun(stage):
    one = stage(lifetime_seconds=60)
    left = await one.abandon()
    one.bench.clock.seconds += 60
    await one.background.start()
    assert "lifetime_seconds" in (await one.ended(left))["error"]["message"]


async def test_whoever_was_overtaken_stops_without_a_word(stage):
    first, go_on = held()
    one = stage(first)
    made = (await one.submit(stream=True))["id"]
    await one.status(made, "in_progress")
    claim = Claim(response_id=made, attempt=1)
    async with asyncio.timeout(LONG):
        while not (await one.store.background.load(claim)).told:
            await asyncio.sleep(0.005)
    assert await one.store.background.take_over(RunTakeover(claim=claim, holder="background/other"))
    go_on.set()
    await one.idle()
    assert (await one.read(made))["status"] == "in_progress"
    assert one.bench.engine.active == 0


@pytest.mark.checklist(515)
async def test_a_stop_hands_over_what_waits_and_what_has_told_nothing(stage):
    first, _ = held()
    one = stage(first, max_running=1)
    made = [(await one.submit())["id"] for _ in range(2)]
    await one.status(made[0], "in_progress")
    one.background.begin_drain()
    one.bench.engine.begin_drain()
    two = stage(streamed(HELLO), streamed(HELLO))
    await two.background.start()
    assert text_of(await two.ended(made[1])) == "Hello there"
    assert one.background.cut_off() == 1
    await one.idle()
    assert one.bench.engine.active == 0
    assert text_of(await two.ended(made[0])) == "Hello there"
