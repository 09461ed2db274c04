import os
import threading

from sqlalchemy import create_engine

from gateway.storage import threads
from gateway.storage.readers import Readers
from gateway.storage.writer import Writer
from tests.storage.samples import make_response
from tests.storage.test_writer import BOUNDS


def call_in_thread(function):
    told = []
    thread = threading.Thread(target=lambda: told.append(function()))
    thread.start()
    thread.join()
    return told[0]


def read_policy():
    return os.sched_getscheduler(0)


def test_a_thread_that_gives_way_wakes_behind_the_loop():
    assert call_in_thread(lambda: (threads.give_way(), read_policy())[1]) == os.SCHED_BATCH
    assert read_policy() == os.SCHED_OTHER


def test_a_policy_that_somebody_chose_stays():
    def give_way_from_idle():
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        threads.give_way()
        return read_policy()

    assert call_in_thread(give_way_from_idle) == os.SCHED_IDLE


def test_a_system_that_forbids_it_is_left_as_it_is(monkeypatch):
    def forbid(*_):
        raise PermissionError

    monkeypatch.setattr(os, "sched_setscheduler", forbid)
    assert call_in_thread(lambda: (threads.give_way(), read_policy())[1]) == os.SCHED_OTHER


def test_a_system_without_it_is_left_as_it_is(monkeypatch):
    monkeypatch.delattr(os, "SCHED_BATCH", raising=False)
    monkeypatch.setattr(os, "sched_setscheduler", None, raising=False)
    threads.give_way()


async def test_the_writer_and_the_readers_give_way():
    engine = create_engine("sqlite://")

    def commit(batch):
        return [read_policy() for _ in batch]

    writer = Writer(commit, **BOUNDS)
    writer.start()
    readers = Readers(engine, lambda: None, threads=1, max_entries=1)
    try:
        assert await writer.write(make_response()) == os.SCHED_BATCH
        assert await readers.run(lambda _connection: read_policy(), timeout=20) == os.SCHED_BATCH
    finally:
        writer.close()
        readers.close()
