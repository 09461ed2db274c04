"""A status put in order for people: in which groups, under which names and in which units its numbers are shown."""

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from gateway.telemetry.distribution import Distribution
from gateway.telemetry.quantities import NOTHING, show_bytes, show_count, show_seconds, show_share
from gateway.telemetry.status import (
    AgentUse,
    BackgroundUse,
    Clients,
    Lanes,
    Status,
    StorageStatus,
    ToolUse,
    UpstreamStatus,
    Use,
)

ALMOST_FULL: Final = 0.9
"""Which share of a limit in use is worth a warning."""


class UseRow(NamedTuple):
    """One level: what it is, how much, and how its numbers are written."""

    name: str
    use: Use
    show: Callable[[float], str]

    @property
    def share(self) -> float | None:
        """Which part of its limit is in use, None without a limit."""
        return self.use.now / self.use.limit if self.use.limit else None


def list_clients(clients: Clients) -> tuple[UseRow, ...]:
    """Return what clients hold."""
    return (
        UseRow("connections", clients.connections, show_count),
        UseRow("responses in the making", clients.responses, show_count),
        UseRow("batches to be sent", clients.delivery_batches, show_count),
        UseRow("bytes to be sent", clients.delivery_bytes, show_bytes),
    )


def list_lanes(lanes: Lanes) -> tuple[UseRow, ...]:
    """Return what WebSockets hold."""
    return (
        UseRow("connections", lanes.connections, show_count),
        UseRow("creates running", lanes.running, show_count),
        UseRow("creates waiting", lanes.waiting, show_count),
        UseRow("bytes of creates", lanes.outstanding_bytes, show_bytes),
        UseRow("histories in memory", lanes.session_bytes, show_bytes),
    )


def list_background(background: BackgroundUse) -> tuple[UseRow, ...]:
    """Return what there is of background responses."""
    return (
        UseRow("being made", background.running, show_count),
        UseRow("waiting", background.queued, show_count),
        UseRow("readers", background.readers, show_count),
    )


def list_tools(tools: ToolUse) -> tuple[UseRow, ...]:
    """Return what the gateway's own tools do."""
    return (
        UseRow("calls and listings running", tools.running, show_count),
        UseRow("calls and listings waiting", tools.waiting, show_count),
        UseRow("MCP sessions", tools.mcp_sessions, show_count),
    )


def list_agents(agents: AgentUse) -> tuple[UseRow, ...]:
    """Return what agents do, where several make a response."""
    return (UseRow("at work", agents.active, show_count),)


def list_writes(storage: StorageStatus) -> tuple[UseRow, ...]:
    """Return what waits to be stored."""
    return (
        UseRow("waiting to be stored", storage.queue_entries, show_count),
        UseRow("bytes waiting", storage.queue_bytes, show_bytes),
    )


def list_calls(server: UpstreamStatus) -> tuple[UseRow, ...]:
    """Return the calls of an inference server."""
    return (UseRow("calls running", server.running, show_count), UseRow("calls waiting", server.waiting, show_count))


def group_uses(status: Status) -> Iterator[tuple[str, tuple[UseRow, ...]]]:
    """Return every level of a status, in groups with a name each."""
    yield "Clients", list_clients(status.clients)
    yield "WebSockets", list_lanes(status.lanes)
    yield "Background", list_background(status.background)
    yield "Tools", list_tools(status.tools)
    yield "Agents", list_agents(status.agents)
    yield "Storage", list_writes(status.storage)
    for server in status.upstreams:
        yield f"Inference server {server.name}", list_calls(server)


def list_latencies(status: Status) -> Iterator[tuple[str, Distribution]]:
    """Return every distribution of times, with its name."""
    yield "first token", status.latency.first_token
    yield "between tokens", status.latency.inter_token
    yield "inference server's first byte", status.latency.upstream_first_byte
    yield "commit", status.storage.commit_seconds
    yield "read from the database", status.storage.read_seconds


def find_troubles(status: Status) -> Iterator[str]:
    """Return what somebody should look at, one line each; texts of servers and databases in it are theirs."""
    if status.draining:
        yield "The gateway is shutting down."
    if not status.storage.healthy:
        yield f"The database is not well: {status.storage.detail}"
    for upstream in status.upstreams:
        if not upstream.healthy:
            yield f"Inference server {upstream.name} is not well: {upstream.detail}"
        if upstream.breaker != "closed":
            state = upstream.breaker.replace("_", "-")
            yield f"The circuit breaker of inference server {upstream.name} is {state}."
    for group, rows in group_uses(status):
        for row in rows:
            if row.share is not None and row.share >= ALMOST_FULL:
                yield f"{group}: {row.name}, {show_use(row)}."


def show_use(row: UseRow) -> str:
    """Return a level in words."""
    if row.use.limit is None:
        return row.show(row.use.now)
    return f"{row.show(row.use.now)} of {row.show(row.use.limit)} ({show_share(row.use.now, row.use.limit)})"


def show_distribution(seen: Distribution, show: Callable[[float], str] = show_seconds) -> tuple[str, str, str, str]:
    """Return count, p50, p99 and the largest value as they are written."""
    p50, p99, largest = (NOTHING if value is None else show(value) for value in (seen.p50, seen.p99, seen.max))
    return show_count(seen.count), p50, p99, largest
