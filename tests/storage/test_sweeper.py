import asyncio
import logging
import threading

import pytest

from gateway.ports import Deletion
from gateway.storage import sweeper as sweeper_module
from gateway.storage.faults import StorageNotReady
from gateway.storage.retention import Cutoffs, Removed
from gateway.storage.sweeper import Sweeper, find_cutoffs
from gateway.telemetry.metrics import Metrics
from tests.storage.samples import make_chain, make_item, make_response

PATIENCE = 20.0


class ScriptedSweep:
    """Plays one step per sweep: what each batch removed, or the error it ends with."""

    def __init__(self, *steps):
        self.steps = list(steps)
        self.cutoffs = []
        self.done = threading.Event()

    def remove(self, cutoffs):
        if not self.steps:
            return
        self.cutoffs.append(cutoffs)
        step = self.steps.pop(0)
        if not self.steps:
            self.done.set()
        if isinstance(step, Exception):
            raise step
        yield from step


@pytest.fixture
def start():
    sweepers = []

    def start_one(sweep, ensure=lambda: None, **settings):
        settings = {"retention_seconds": 1000.0, "interval_seconds": 0.01, "now": lambda: 5000.0, **settings}
        sweeper = Sweeper(sweep, ensure, **{"metrics": Metrics(), **settings})
        sweepers.append(sweeper)
        sweeper.start()
        return sweeper

    yield start_one
    for sweeper in sweepers:
        sweeper.close()


@pytest.mark.parametrize(
    ("retention", "grace", "cutoffs"),
    [
        (1000.0, 60.0, Cutoffs(created=4000, deleted=4940)),
        (0.0, 60.0, Cutoffs(created=None, deleted=4940)),
        (0.5, 0.25, Cutoffs(created=4999, deleted=4999)),
    ],
)
def test_the_cutoffs_lie_before_now(retention, grace, cutoffs):
    assert find_cutoffs(5000.0, retention_seconds=retention, grace_seconds=grace) == cutoffs


def test_sweeps_again_and_again_whatever_happens(start, caplog):
    caplog.set_level(logging.INFO)
    sweep = ScriptedSweep([Removed(responses=2, items=3)] * 2, StorageNotReady("Not now."), RuntimeError(), [], [])
    metrics = Metrics()
    sweeper = start(sweep, metrics=metrics)
    assert sweep.done.wait(PATIENCE)
    sweeper.close()
    assert sweep.cutoffs[0] == Cutoffs(created=4000, deleted=4999)
    assert [(record.levelname, record.message) for record in caplog.records] == [
        ("INFO", "4 old responses with 6 items were removed"),
        ("WARNING", "old responses were not removed, the next sweep tries again: Not now."),
        ("ERROR", "old responses were not removed, the next sweep tries again"),
    ]
    sample = metrics.registry.get_sample_value
    assert sample("gateway_retention_removed_responses_total") == 4
    assert sample("gateway_retention_failures_total") == 2
    assert sample("gateway_retention_last_sweep_timestamp_seconds") == 5000
    assert sample("gateway_retention_sweep_seconds_count") >= 2


def test_batches_count_although_the_sweep_breaks_off(start, monkeypatch):
    class Torn:
        done = threading.Event()

        def remove(self, cutoffs):
            yield Removed(responses=3)
            self.done.set()
            raise RuntimeError

    monkeypatch.setattr(sweeper_module, "_FIRST_WAIT_SECONDS", 0.01)
    metrics = Metrics()
    sweeper = start(Torn(), metrics=metrics, interval_seconds=3600)
    assert Torn.done.wait(PATIENCE)
    sweeper.close()
    sample = metrics.registry.get_sample_value
    assert sample("gateway_retention_removed_responses_total") == 3
    assert sample("gateway_retention_failures_total") == 1
    assert sample("gateway_retention_sweep_seconds_count") == 0


def test_closing_ends_it_after_the_batch(start):
    began, batches = threading.Event(), []

    class Endless:
        def remove(self, cutoffs):
            while True:
                began.set()
                batches.append(1)
                yield Removed(responses=1)

    sweeper = start(Endless())
    assert began.wait(PATIENCE)
    sweeper.close()
    swept = len(batches)
    sweeper.close()
    assert len(batches) == swept


def test_may_be_closed_before_it_starts():
    Sweeper(ScriptedSweep(), lambda: None, retention_seconds=1, interval_seconds=1, metrics=Metrics()).close()


async def test_a_store_removes_what_is_old_by_itself(open_sql_store):
    store = await open_sql_store(retention_interval_seconds=0.05)
    old, young = make_response(make_item()), make_response(make_item(), created_at=2**40)
    deleted, needed = make_chain(2, created_at=2**40)
    for response in (old, young, deleted, needed):
        await store.append(response)
    await store.delete(Deletion(id=deleted.id, principal="local", at=1))
    async with asyncio.timeout(PATIENCE):
        while await store.response("local", old.id):
            await asyncio.sleep(0.02)
    assert await store.response("local", young.id) == young
    sample = store._metrics.registry.get_sample_value
    async with asyncio.timeout(PATIENCE):
        while not sample("gateway_retention_removed_responses_total"):
            await asyncio.sleep(0.02)
        while not sample("gateway_retention_last_sweep_timestamp_seconds"):
            await asyncio.sleep(0.02)
    assert sample("gateway_retention_removed_responses_total") == 1
    assert len((await store.history("local", needed.id)).items) == 4


async def test_a_store_that_keeps_all_removes_deleted_responses_only(open_sql_store):
    store = await open_sql_store(retention_interval_seconds=0.05, retention_seconds=0)
    old, deleted = make_response(make_item()), make_response(make_item())
    for response in (old, deleted):
        await store.append(response)
    await store.delete(Deletion(id=deleted.id, principal="local", at=1))
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await store.append(deleted)
            except Exception:
                await asyncio.sleep(0.02)
            else:
                break
    assert await store.response("local", old.id) == old
