"""Metrics of several processes, kept in files of one folder, so that one of them can show the sum."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector, values
from prometheus_client.exposition import generate_latest
from prometheus_client.metrics_core import Metric as PrometheusFamily
from prometheus_client.multiprocess import MultiProcessCollector, mark_process_dead

_PREFIX: Final = "gateway-metrics-"
_LOCK: Final = "lock"


@contextmanager
def shared_folder() -> Iterator[Path]:
    """Make a folder for the metrics of several processes, and remove it in the end.

    One that is left of processes that were killed is removed first. Every process that shares a folder holds its lock
    for as long as it lives, so that it is known whether there is one.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        _remove_abandoned(left)
    with tempfile.TemporaryDirectory(prefix=_PREFIX) as folder:
        yield Path(folder)


def _remove_abandoned(folder: Path) -> None:
    # What lacks a lock is just being made, or nobody's of ours; and in a folder for everybody, names prove nothing.
    with suppress(OSError):
        lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            if folder.lstat().st_uid == os.getuid():
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder)
        finally:
            os.close(lock)


def share_metrics(folder: Path, number: int) -> None:
    """Keep every metric that this process makes from now on in files of the folder.

    Files bear the number and not the process id, so that a process that takes another one's place counts on where
    that one stopped, and there are never more files than places.

    Args:
        folder: the same for all.
        number: tells apart those that run at the same time.
    """
    # Held until the process ends, however it does.
    fcntl.flock(os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600), fcntl.LOCK_SH)
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: number)  # type: ignore[no-untyped-call]


def forget_gauges(folder: Path, number: int) -> None:
    """Drop what a process that has ended showed of its state; what it counted stays."""
    mark_process_dead(number, str(folder))  # type: ignore[no-untyped-call]


class SharedMetrics:
    """Shows the metrics of all processes that share a folder.

    Args:
        folder: as given to `share_metrics`.
        observer: number of the process that shows them; it does no work, so it is never the least of all.
    """

    def __init__(self, folder: Path, observer: int) -> None:
        self._folder = folder
        self._observer = observer

    def render(self, processes: Mapping[str, int]) -> bytes:
        """Return the Prometheus text exposition; reads files, so it takes milliseconds.

        Args:
            processes: the process ids by the name each is shown under, with what the system knows of it.
        """
        registry = CollectorRegistry()
        registry.register(_Files(self._folder.glob("*.db"), skipped=f"gauge_livemin_{self._observer}.db"))
        registry.register(_Processes(processes))
        return generate_latest(registry)


class _Files:
    """What files of shared metrics hold, summed up."""

    def __init__(self, files: Iterable[Path], skipped: str) -> None:
        self._files = [str(file) for file in files if file.name != skipped]

    def collect(self) -> Iterable[PrometheusFamily]:
        """Return each family once."""
        families: Iterable[PrometheusFamily] = MultiProcessCollector.merge(self._files)  # type: ignore[no-untyped-call]
        return families


class _Processes:
    """What `ProcessCollector` tells of one process, for several, told apart by a label."""

    def __init__(self, processes: Mapping[str, int]) -> None:
        self._processes = processes

    def collect(self) -> Iterable[PrometheusFamily]:
        """Return each family once, with the samples of every process that still runs."""
        families: dict[str, PrometheusFamily] = {}
        for name, pid in self._processes.items():
            for family in ProcessCollector(pid=partial(str, pid), registry=None).collect():
                shown = families.setdefault(
                    family.name, PrometheusFamily(family.name, family.documentation, family.type)
                )
                for sample in family.samples:
                    shown.add_sample(sample.name, {"worker": name}, sample.value)
        return families.values()
