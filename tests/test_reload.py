"""Reloads on request: one at a time, never lost, and none is the last because it failed."""

import asyncio
import logging
import threading

import pytest
from msgspec import structs

from gateway.app import Gateway, build_parts
from gateway.config import ConfigError, Finding, GatewayConfig, LoadedConfig, Origin, ResponsesConfig, TelemetryConfig
from gateway.config.findings import DEFAULT
from gateway.reload import Reloader
from gateway.storage.memory import MemoryStore

RUNNING = GatewayConfig()
CHANGED = structs.replace(RUNNING, responses=ResponsesConfig(max_tools=5))


def loaded(config, *warnings):
    return LoadedConfig(config=config, origins={}, warnings=warnings, file=None)


class Readings:
    """Sources whose readings are counted and can be held up."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.count = 0
        self.go_on = threading.Event()
        self.go_on.set()

    def __call__(self):
        outcome = self.outcomes[min(self.count, len(self.outcomes) - 1)]
        self.count += 1
        assert self.go_on.wait(5)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


@pytest.fixture
def gateway():
    return Gateway(build_parts(RUNNING, store=MemoryStore()))


def reloader_of(gateway, load):
    return Reloader(gateway, load, gateway.parts.metrics, gateway.parts.clock)


def outcomes(gateway):
    names = ("applied", "unchanged", "restart_needed", "failed", "ignored")
    read = gateway.parts.metrics.registry.get_sample_value
    counts = {name: read("gateway_config_reloads_total", {"outcome": name}) for name in names}
    return {name: count for name, count in counts.items() if count}


async def until(reached):
    async with asyncio.timeout(5):
        while not reached():
            await asyncio.sleep(0.001)


async def test_each_reload_is_counted_and_told(gateway, caplog):
    caplog.set_level(logging.INFO)
    warning = Finding(path="server.host", message="surprises", source="--set")
    waiting = structs.replace(CHANGED, storage=structs.replace(CHANGED.storage, readers=2))
    broken = ConfigError([Finding(path="server.port", message="is wrong", source="--set")], [warning])
    readings = Readings(loaded(RUNNING), loaded(CHANGED, warning), loaded(waiting), broken, OSError("no"))
    reloader = reloader_of(gateway, readings)
    async with reloader.running():
        for number in range(1, 6):
            reloader.request()
            await until(lambda number=number: sum(outcomes(gateway).values()) == number)
    assert outcomes(gateway) == {"unchanged": 1, "applied": 1, "restart_needed": 1, "failed": 2}
    nothing, applied, pending, failed, unexpected = (
        record for record in caplog.records if record.getMessage().startswith("reload: ")
    )
    assert nothing.getMessage() == "reload: nothing has changed"
    assert applied.getMessage() == "reload: 1 applied, 0 waiting for a restart"
    assert (applied.applied, applied.warnings) == (
        {"responses.max_tools": "1024 -> 5"},
        ["--set: server.host: surprises"],
    )
    assert (pending.levelno, pending.restart_needed) == (logging.WARNING, {"storage.readers": "4 -> 2"})
    assert (failed.levelno, failed.problems) == (logging.ERROR, ["--set: server.port: is wrong"])
    assert failed.exc_info is None
    assert unexpected.exc_info is not None
    assert gateway.config == CHANGED


async def test_requests_during_a_reading_become_one_more(gateway):
    readings = Readings(loaded(CHANGED))
    readings.go_on.clear()
    reloader = reloader_of(gateway, readings)
    async with reloader.running():
        reloader.request()
        await until(lambda: readings.count == 1)
        for _ in range(10):
            reloader.request()
        assert gateway.config == RUNNING, "the loop must not wait for the reading"
        readings.go_on.set()
        await until(lambda: sum(outcomes(gateway).values()) == 2)
    assert outcomes(gateway) == {"applied": 1, "unchanged": 1}
    assert readings.count == 2


async def test_who_asked_is_in_the_audit_log(gateway, caplog):
    caplog.set_level(logging.INFO, "gateway.audit")
    reloader = reloader_of(gateway, Readings(loaded(CHANGED)))
    async with reloader.running():
        reloader.request()
        await until(lambda: outcomes(gateway) == {"applied": 1})
        reloader.request("SIGHUP")
        reloader.request()
        await until(lambda: sum(outcomes(gateway).values()) == 2)
    (record,) = [record for record in caplog.records if record.name == "gateway.audit"]
    assert (record.action, record.actor, record.outcome) == ("config reload", "SIGHUP", "unchanged")


async def test_a_request_before_the_start_is_kept(gateway):
    reloader = reloader_of(gateway, Readings(loaded(CHANGED)))
    reloader.request()
    async with reloader.running():
        await until(lambda: outcomes(gateway) == {"applied": 1})


async def test_a_drain_that_begins_during_the_reading_wins(gateway):
    readings = Readings(loaded(CHANGED))
    readings.go_on.clear()
    reloader = reloader_of(gateway, readings)
    async with reloader.running():
        reloader.request()
        await until(lambda: readings.count == 1)
        gateway.begin_drain()
        readings.go_on.set()
        await until(lambda: outcomes(gateway) == {"ignored": 1})
        reloader.request()
        await until(lambda: outcomes(gateway) == {"ignored": 2})
    assert (readings.count, gateway.config) == (1, RUNNING)


async def test_the_time_is_that_of_the_last_reading_without_a_fault(gateway):
    now = [1000.0]

    class Clock:
        def now(self):
            return now[0]

    gateway.parts = structs.replace(gateway.parts, clock=Clock())

    def stamp():
        return gateway.parts.metrics.registry.get_sample_value("gateway_config_last_reload_timestamp_seconds")

    reloader = reloader_of(gateway, Readings(ConfigError([]), loaded(RUNNING)))
    assert stamp() == 1000
    now[0] = 2000.0
    async with reloader.running():
        reloader.request()
        await until(lambda: outcomes(gateway) == {"failed": 1})
        assert stamp() == 1000
        reloader.request()
        await until(lambda: outcomes(gateway) == {"failed": 1, "unchanged": 1})
    assert stamp() == 2000


@pytest.mark.parametrize(("before", "after"), [("info", "error"), ("error", "info")])
async def test_a_change_of_the_level_is_always_told(gateway, before, after):
    told = []

    class Listener(logging.Handler):
        def emit(self, record):
            told.append(record.getMessage())

    root, listener = logging.getLogger(), Listener()
    kept = root.level
    root.addHandler(listener)
    try:
        root.setLevel(before.upper())
        gateway.config = structs.replace(RUNNING, telemetry=TelemetryConfig(log_level=before))
        wanted = structs.replace(RUNNING, telemetry=TelemetryConfig(log_level=after))
        reloader = reloader_of(gateway, Readings(loaded(wanted)))
        async with reloader.running():
            reloader.request()
            await until(lambda: outcomes(gateway) == {"applied": 1})
        assert root.level == logging.getLevelNamesMapping()[after.upper()]
    finally:
        root.removeHandler(listener)
        root.setLevel(kept)
    assert "reload: 1 applied, 0 waiting for a restart" in told


async def test_values_that_wait_for_a_restart_keep_the_place_where_they_were_written(gateway):
    changed = structs.replace(CHANGED, storage=structs.replace(CHANGED.storage, readers=2))
    file = Origin(kind="file", name="gateway.toml", line=3)
    origins = dict.fromkeys(("responses.max_tools", "storage.readers", "server.host"), file)
    gateway.origins = dict.fromkeys(origins, DEFAULT)
    reloader = reloader_of(gateway, Readings(LoadedConfig(config=changed, origins=origins, warnings=(), file=None)))
    async with reloader.running():
        reloader.request()
        await until(lambda: outcomes(gateway))
    assert gateway.origins == {"responses.max_tools": file, "storage.readers": DEFAULT, "server.host": file}
