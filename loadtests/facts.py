"""What a report says beside the times: the machine, the versions, and what the gateway used."""

import hashlib
import os
import platform
import threading
import urllib.error
import urllib.request
from importlib.metadata import version
from pathlib import Path
from typing import Self

import msgspec
from msgspec import Struct
from plan import Plan
from prometheus_client.parser import text_string_to_metric_families

_SCRAPE_SECONDS = 10.0
_SAMPLE_SECONDS = 5.0
ASKED_BY_THE_CLOCK = frozenset({"probe", "background_orphans"})
"""Reads of the database that say nothing about responses."""


class Scrape(Struct, frozen=True):
    """What a gateway has counted up to now; None is what it does not tell.

    Attributes:
        cpu: seconds of CPU of its process.
        resident: bytes of memory.
        reads: questions to the database, without those that only ask whether it is there.
        build: its version and its Python's.
    """

    cpu: float | None
    resident: float | None
    reads: float | None
    build: str | None


class Usage(Struct, frozen=True):
    """What a run used, most of it the gateway; None is what nobody told.

    Attributes:
        cpu: seconds of CPU.
        reads: questions to the database.
        resident: bytes of memory at the end.
        peak: the most that was seen.
        build: its version and its Python's.
        machine: share of the time for which the CPUs of this machine were busy, with whatever ran there.
    """

    cpu: float | None = None
    reads: float | None = None
    resident: float | None = None
    peak: float | None = None
    build: str | None = None
    machine: float | None = None


def scrape(admin: str) -> Scrape | None:
    """Read the metrics at an admin listener; None when it cannot be reached."""
    try:
        with urllib.request.urlopen(f"{admin}/metrics", timeout=_SCRAPE_SECONDS) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, OSError, ValueError):
        return None
    return read_metrics(text)


def read_metrics(text: str) -> Scrape:
    """Return what metrics in Prometheus' text format say."""
    totals: dict[str, float] = {}
    build = None
    for family in text_string_to_metric_families(text):
        if family.type == "counter":
            # What has labels has no samples before it was counted for the first time.
            totals.setdefault(f"{family.name}_total", 0.0)
        for sample in family.samples:
            if sample.name == "gateway_build_info":
                build = f"{sample.labels['version']} on Python {sample.labels['python']}"
            if sample.labels.get("query") not in ASKED_BY_THE_CLOCK:
                totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return Scrape(
        cpu=totals.get("process_cpu_seconds_total"),
        resident=totals.get("process_resident_memory_bytes"),
        reads=totals.get("gateway_storage_reads_total"),
        build=build,
    )


class Gauge:
    """Looks at a gateway's metrics, and at the machine, from the begin of a block to its end.

    Args:
        admin: URL of its admin listener; None is unknown.
    """

    def __init__(self, admin: str | None) -> None:
        self._admin = admin
        self._seen: list[Scrape] = []
        self._over = threading.Event()
        self._watch = threading.Thread(target=self._look_on, daemon=True)

    def __enter__(self) -> Self:
        self._before = self._after = _read_cpus()
        self._look()
        self._watch.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._watch.join()
        self._look()
        self._after = _read_cpus()

    @property
    def usage(self) -> Usage:
        """What was used between the first look and the last."""
        busy, passed = (after - before for before, after in zip(self._before, self._after, strict=True))
        machine = busy / passed if passed else None
        if len(self._seen) < 2:
            return Usage(machine=machine)
        first, last = self._seen[0], self._seen[-1]
        return Usage(
            cpu=_subtract(last.cpu, first.cpu),
            reads=_subtract(last.reads, first.reads),
            resident=last.resident,
            peak=max((seen.resident for seen in self._seen if seen.resident is not None), default=None),
            build=last.build,
            machine=machine,
        )

    def _look_on(self) -> None:
        while not self._over.wait(_SAMPLE_SECONDS):
            self._look()

    def _look(self) -> None:
        if self._admin is not None and (seen := scrape(self._admin)) is not None:
            self._seen.append(seen)


def _read_cpus() -> tuple[int, int]:
    """Return for how long the CPUs of this machine were busy and how long they exist, 0 where that is not told."""
    try:
        times = list(map(int, Path("/proc/stat").read_text().split(maxsplit=9)[1:9]))
    except (OSError, ValueError):
        return 0, 0
    # The fourth and fifth are what they were idle for.
    return sum(times) - sum(times[3:5]), sum(times)


def _subtract(last: float | None, first: float | None) -> float | None:
    return None if last is None or first is None else last - first


def describe_machine() -> str:
    """Return the processor, its cores, the memory and the system of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return (
        f"{_find_processor()}, {os.cpu_count()} CPUs, {memory:.0f} GiB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def describe_versions() -> str:
    """Return the versions of what asks."""
    return f"Locust {version('locust')}, websocket-client {version('websocket-client')}"


def hash_plan(plan: Plan) -> str:
    """Return what tells this plan from any other."""
    return hashlib.sha256(msgspec.json.encode(plan, order="sorted")).hexdigest()[:12]


def _find_processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
