"""The processes of a chain benchmark: who runs on which CPU, what each used, and what the gateway counted."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from facts import ASKED_BY_THE_CLOCK
from harness.processes import Simulator
from integration.watched import WatchedGateway
from postgres import PostgresServer
from processors import pinned

_SETTINGS = {"telemetry.log_level": "error"}
# What is not stored needs no database of its own.
_DATABASES = {"memory": "sqlite", "sqlite": "sqlite", "postgres": "postgres"}


class Rig:
    """A simulated inference server and one gateway for each database, for as long as the block runs.

    With two CPUs the gateways have the first for themselves; this process and everything else share the second.

    Args:
        folder: where databases and logs live.
        stores: of `memory`, `sqlite` and `postgres`.
        options: of the inference server.
    """

    def __init__(self, folder: Path, stores: Sequence[str], options: Sequence[str] = ()) -> None:
        self._folder = folder
        self._stores = stores
        self._simulator = Simulator(folder, options)
        self._gateways: dict[str, WatchedGateway] = {}
        self._running = ExitStack()

    def __enter__(self) -> Self:
        cpus = sorted(os.sched_getaffinity(0))
        with ExitStack() as starting:
            starting.enter_context(pinned(cpus[1:2] or cpus))
            starting.enter_context(self._simulator)
            started: dict[str, WatchedGateway] = {}
            for database in dict.fromkeys(_DATABASES[store] for store in self._stores):
                url = starting.enter_context(_serve_postgres()) if database == "postgres" else None
                (self._folder / database).mkdir()
                gateway = WatchedGateway(self._folder / database, self._simulator, _SETTINGS, url)
                with pinned(cpus[:1]):
                    started[database] = starting.enter_context(gateway)
            self._gateways = {store: started[_DATABASES[store]] for store in self._stores}
            self._running = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._running.close()

    def port(self, store: str) -> int:
        """Return where callers connect to: a gateway, or the inference server when nothing of ours keeps anything."""
        return (self._gateways.get(store) or self._simulator).port

    def admin_url(self, store: str) -> str:
        """Return where the admin listener of a gateway is."""
        return self._gateways[store].admin_url

    def read_cpu(self, store: str) -> Counter[str]:
        """Return the seconds of CPU used up to now by `gateway` and `upstream`, children included, and `client`."""
        gateway = self._gateways.get(store)
        return Counter(
            gateway=_count_cpu(gateway.pid) if gateway else 0.0,
            upstream=_count_cpu(self._simulator.pid),
            client=time.process_time(),
        )

    def read_memory(self, store: str) -> float:
        """Return the MiB that a gateway has in memory now."""
        return self._gateways[store].resident_mib

    def count_questions(self, store: str) -> Counter[str]:
        """Return how often the gateway asked up to now: `reads` of the database, and `lookups` in its own cache."""
        gateway = self._gateways.get(store)
        if gateway is None:
            return Counter()
        # All of one moment, for some things are asked by the clock, and say nothing about turns.
        reads = gateway.read_series("gateway_storage_reads_total")
        probes = sum(reads[f'query="{name}"'] for name in ASKED_BY_THE_CLOCK)
        return Counter(reads=reads.total() - probes, lookups=gateway.count("gateway_history_cache_lookups_total"))


@contextmanager
def _serve_postgres() -> Iterator[str]:
    server = PostgresServer()
    try:
        server.start()
        try:
            yield server.create_database()
        finally:
            server.stop()
    finally:
        server.remove()


def _count_cpu(pid: int) -> float:
    """Return the seconds of CPU that the threads of a process and of all below it have used."""
    used = 0.0
    for thread in Path(f"/proc/{pid}/task").iterdir():
        used += int((thread / "schedstat").read_text().split()[0]) / 1e9
        used += sum(_count_cpu(int(child)) for child in (thread / "children").read_text().split())
    return used
