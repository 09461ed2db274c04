"""A gateway that is examined from outside: what it holds while it serves, and whether it lets go of it."""

import re
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harness.descriptors import find_sockets, list_descriptors
from harness.processes import free_port
from harness.upstream import Upstream
from integration.databases import DatabaseGateway

SETTLE_SECONDS = 20.0
# Everything that must be nothing when no request is left.
GAUGES = (
    "gateway_active_responses",
    "gateway_agents_active",
    "gateway_upstream_calls_running",
    "gateway_upstream_calls_waiting",
    "gateway_delivery_queue_batches",
    "gateway_delivery_queue_bytes",
    "gateway_storage_queue_entries",
    "gateway_storage_queue_bytes",
    "gateway_client_connections",
    "gateway_websocket_connections",
    "gateway_websocket_creates_running",
    "gateway_websocket_creates_waiting",
    "gateway_websocket_outstanding_bytes",
    "gateway_websocket_session_bytes",
)


@dataclass(frozen=True)
class Holdings:
    """What a gateway holds at one moment.

    Attributes:
        gauges: the gauges that count requests and what they hold.
        tasks: tasks of its event loop.
        descriptors: open descriptors, but for the database's and for connections to the inference server.
        upstream_calls: calls that run at the inference server, as that counts them.
    """

    gauges: Mapping[str, float]
    tasks: int
    descriptors: int
    upstream_calls: int

    def beyond(self, idle: "Holdings") -> dict[str, float]:
        """Return what is more than an idle gateway holds, by name; nothing if nothing is."""
        more = {name: value for name, value in self.gauges.items() if value}
        more["tasks"] = self.tasks - idle.tasks
        more["descriptors"] = self.descriptors - idle.descriptors
        more["upstream calls"] = self.upstream_calls
        return {name: value for name, value in more.items() if value > 0}


class WatchedGateway(DatabaseGateway):
    """A gateway with its admin listener, examined from outside.

    Args:
        folder: where the database and the log live.
        upstream: the inference server.
        settings: `section.key` to TOML value.
        database: URL of the database; default: a SQLite file in the folder.
    """

    def __init__(
        self,
        folder: Path,
        upstream: Upstream,
        settings: Mapping[str, str] | None = None,
        database: str | None = None,
    ) -> None:
        self._admin_port = free_port()
        self._upstream = upstream
        admin = {"admin.enabled": "true", "admin.bind": f"127.0.0.1:{self._admin_port}"}
        database = database or f"sqlite:///{folder}/responses.db"
        super().__init__(folder, upstream.url, database, {**admin, **(settings or {})})

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self._admin_port}"

    def look(self) -> Holdings:
        """Return what it holds now."""
        others = find_sockets(self._upstream.port)
        names = list_descriptors(self.pid)
        own = [name for name in names if name not in others and not name.startswith(str(self.database))]
        # Last, because this takes a connection itself.
        samples = self._read_samples()
        return Holdings(
            gauges={name: samples[name].total() for name in GAUGES},
            tasks=int(samples["gateway_tasks"].total()),
            descriptors=len(own) - self._sessions,
            upstream_calls=self._upstream.open_calls,
        )

    def rest(self) -> Holdings:
        """Wait until what it holds stands still, after its start or a probe, and return that."""
        held, before = self.look(), None
        while held != before:
            time.sleep(0.2)
            held, before = self.look(), held
        return held

    def settle(self, idle: Holdings) -> dict[str, float]:
        """Wait until it holds no more than when it was idle, and return what it still does after a while."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while (beyond := self.look().beyond(idle)) and time.monotonic() < deadline:
            time.sleep(0.1)
        return beyond

    def await_sessions_end(self) -> None:
        """Wait until the database has dealt with all that a killed gateway asked of it."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while self._sessions:
            assert time.monotonic() < deadline
            time.sleep(0.02)

    @property
    def resident_mib(self) -> float:
        """Its own memory, without what it maps of files, which a forked process shares and finds bit by bit."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("RssAnon:")[2].split()[0]) / 1024

    def count(self, name: str, labels: str | None = None) -> float:
        """Return the value of one metric, over all its series unless one is named as in `code="invalid_json"`."""
        series = self._read_samples()[name]
        return series.total() if labels is None else series[labels]

    def read_series(self, name: str) -> Counter[str]:
        """Return the values of one metric by their labels, all of one moment."""
        return self._read_samples()[name]

    @property
    def _sessions(self) -> int:
        """Connections to a PostgreSQL server; those to a SQLite file are known by its name."""
        if self.on_sqlite:
            return 0
        ours = "datname = current_database() AND application_name = 'responses-gateway'"
        return int(self.query(f"SELECT count(*) FROM pg_stat_activity WHERE {ours}")[0][0])

    def _read_samples(self) -> dict[str, Counter[str]]:
        """Read every sample: name to labels to value."""
        with urllib.request.urlopen(f"{self.admin_url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        samples: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for name, labels, value in re.findall(r"^(\w+)(?:\{([^}]*)\})? (\S+)$", text, re.MULTILINE):
            samples[name][labels] = float(value)
        return samples
