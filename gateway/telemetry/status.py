"""What a gateway tells of itself, and how what several processes tell becomes one.

A document holds numbers that add up: counts, levels and buckets. So those of several processes make one of the same
form, and that of a single process is the sum of one.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, Final, Literal, TypeVar

from msgspec import Struct, structs

from gateway.telemetry.distribution import Distribution, add_up
from gateway.telemetry.principals import PrincipalTokens, add_up_principals

LAST_ERRORS: Final = 50
"""How many failures a process remembers, and a document tells."""

Breaker = Literal["closed", "half_open", "open"]
BREAKERS: Final[tuple[Breaker, ...]] = ("closed", "half_open", "open")
"""The states of a circuit breaker, by the numbers of the metric; each is worse than the one before."""

_Part = TypeVar("_Part", bound=Struct)


class Process(Struct, frozen=True, kw_only=True):
    """One process.

    Attributes:
        pid: its process id.
        started: Unix seconds.
        responses: how many it is making now.
    """

    pid: int
    started: float
    responses: int


class Use(Struct, frozen=True, kw_only=True):
    """How much of something is in use.

    Attributes:
        now: at the moment.
        high: the most since the start; of several processes the sum, so at most this.
        limit: what the configuration allows, None where it sets no bound; of several processes the sum.
    """

    now: int
    high: int
    limit: int | None = None


class UpstreamStatus(Struct, frozen=True, kw_only=True):
    """One inference server. Where processes disagree, the worst is told.

    Attributes:
        name: as configured.
        url: where it is.
        dialect: how it is spoken to.
        healthy: the last probe found it well.
        detail: one line about that, in the words of the server or of the system.
        checked_at: Unix seconds of that probe, 0 before the first.
        breaker: the circuit breaker; `half_open` tries one call at a time, `open` refuses all.
        running: calls that run.
        waiting: calls that wait for their turn.
    """

    name: str
    url: str
    dialect: str
    healthy: bool
    detail: str
    checked_at: float
    breaker: Breaker
    running: Use
    waiting: Use


class StorageStatus(Struct, frozen=True, kw_only=True):
    """The database. Where processes disagree on its health, the worst is told.

    Attributes:
        database: its URL, without a password.
        healthy: it answers and takes what it is given.
        detail: one line about that.
        queue_entries: responses and deletions that wait to be written or are being written.
        queue_bytes: their bytes.
        commit_seconds: from handing a response over to its commit.
        read_seconds: from a question to its answer.
        failures: responses that could not be stored.
    """

    database: str
    healthy: bool
    detail: str
    queue_entries: Use
    queue_bytes: Use
    commit_seconds: Distribution
    read_seconds: Distribution
    failures: int


class Clients(Struct, frozen=True, kw_only=True):
    """What clients hold.

    Attributes:
        connections: open connections, of HTTP and WebSocket.
        responses: responses being made.
        delivery_batches: batches of events made for clients and not yet sent.
        delivery_bytes: their bytes.
    """

    connections: Use
    responses: Use
    delivery_batches: Use
    delivery_bytes: Use


class Lanes(Struct, frozen=True, kw_only=True):
    """What WebSockets hold.

    Attributes:
        connections: open WebSockets.
        running: creates that run.
        waiting: creates that wait for their lane or for a free place.
        outstanding_bytes: frames of both.
        session_bytes: histories kept in memory.
    """

    connections: Use
    running: Use
    waiting: Use
    outstanding_bytes: Use
    session_bytes: Use


class BackgroundUse(Struct, frozen=True, kw_only=True):
    """Responses that are made on their own.

    Attributes:
        running: those being made.
        queued: those that wait.
        readers: clients that read events.
    """

    running: Use
    queued: Use
    readers: Use


class LimitUse(Struct, frozen=True, kw_only=True):
    """A limit, beside what was seen of what it bounds.

    Attributes:
        key: of the configuration.
        limit: in bytes; of several processes the largest.
        breaches: how often something was refused or ended because of it.
        seen: sizes in bytes.
    """

    key: str
    limit: int
    breaches: int
    seen: Distribution


class Outcome(Struct, frozen=True, kw_only=True):
    """Responses that ended alike.

    Attributes:
        transport: `json`, `sse` or `websocket`.
        status: `completed`, `incomplete` or `failed`.
        count: how many.
    """

    transport: str
    status: str
    count: int


class Rejection(Struct, frozen=True, kw_only=True):
    """What was refused or ended because a bound was met.

    Attributes:
        key: of the configuration.
        count: how often.
    """

    key: str
    count: int


class Tokens(Struct, frozen=True, kw_only=True):
    """Tokens of one model, as the inference servers count them.

    Attributes:
        model: its name, or `other` for what neither the configuration nor a server's list knows.
        input: read.
        cached: those of them that were cached.
        output: made.
        reasoning: those of them that were reasoning.
    """

    model: str
    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0


class Latency(Struct, frozen=True, kw_only=True):
    """How long callers wait, in seconds.

    Attributes:
        first_token: from a request that was read to the first output delta of its stream.
        inter_token: between the output events of a stream after its first delta.
        upstream_first_byte: from an inference call to its status line.
    """

    first_token: Distribution
    inter_token: Distribution
    upstream_first_byte: Distribution


class LastError(Struct, frozen=True, kw_only=True):
    """A failure that a caller was told of.

    Attributes:
        time: Unix seconds.
        request_id: of the request, or of the connection on a WebSocket.
        response_id: of the response, None before there is one.
        route: the route's template, `sse` for a failure inside an event stream, or `websocket`.
        status: the HTTP status, or the one it would be.
        code: the code of the error; `upstream` for what the inference server calls by no plain word.
    """

    time: float
    request_id: str
    response_id: str | None
    route: str
    status: int
    code: str


class Status(Struct, frozen=True, kw_only=True):
    """What one process tells of itself, or several together.

    Attributes:
        time: Unix seconds at which it was told; of several, the latest.
        version: of the gateway.
        python: of Python.
        started: Unix seconds; of several, the earliest.
        draining: it is shutting down; of several, one is.
        auth: how callers prove who they are, as in `[auth] mode`.
        processes: those that tell, by process id.
        upstreams: inference servers, by name.
        storage: the database.
        clients: what clients hold.
        lanes: what WebSockets hold.
        background: responses made on their own.
        limits: limits of sizes, with what was seen.
        rejections: what was refused or ended because a bound was met, by key.
        responses: how responses ended.
        tokens: by model.
        principals: those that used the most tokens, the largest first, at most 20.
        latency: how long callers wait.
        last_errors: the newest failures, newest first, at most 50.
    """

    time: float
    version: str
    python: str
    started: float
    draining: bool
    auth: str
    processes: tuple[Process, ...]
    upstreams: tuple[UpstreamStatus, ...]
    storage: StorageStatus
    clients: Clients
    lanes: Lanes
    background: BackgroundUse
    limits: tuple[LimitUse, ...]
    rejections: tuple[Rejection, ...]
    responses: tuple[Outcome, ...]
    tokens: tuple[Tokens, ...]
    principals: tuple[PrincipalTokens, ...]
    latency: Latency
    last_errors: tuple[LastError, ...]

    @property
    def uptime(self) -> float:
        """Seconds since the start."""
        return max(0.0, self.time - self.started)


def merge(documents: Sequence[Status]) -> Status:
    """Return what several processes tell as if one told it; the order does not matter.

    Args:
        documents: one for each process, of the same version and configuration; at least one.

    Raises:
        ValueError: there is no document, or values were counted in different buckets.
    """
    if not documents:
        raise ValueError("there is no document to merge")
    newest = max(documents, key=attrgetter("time", "version", "python", "auth"))
    return _fold(
        documents,
        newest,
        started=min(one.started for one in documents),
        draining=any(one.draining for one in documents),
        processes=tuple(sorted((one for document in documents for one in document.processes), key=structs.astuple)),
        upstreams=_merge_alike(documents, "upstreams", "name", _merge_upstreams),
        storage=_merge_storage([one.storage for one in documents]),
        clients=_fold([one.clients for one in documents], newest.clients),
        lanes=_fold([one.lanes for one in documents], newest.lanes),
        background=_fold([one.background for one in documents], newest.background),
        limits=_merge_alike(documents, "limits", "key", _merge_limits),
        rejections=_merge_alike(documents, "rejections", "key", _add_counts),
        tokens=_merge_alike(documents, "tokens", "model", _add_counts),
        principals=add_up_principals(one for document in documents for one in document.principals),
        responses=_merge_outcomes(one for document in documents for one in document.responses),
        latency=_fold([one.latency for one in documents], newest.latency),
        last_errors=select_newest(one for document in documents for one in document.last_errors),
    )


def select_newest(errors: Iterable[LastError]) -> tuple[LastError, ...]:
    """Return the newest failures, newest first, at most `LAST_ERRORS`."""
    return tuple(sorted(errors, key=_rank, reverse=True)[:LAST_ERRORS])


def _rank(error: LastError) -> tuple[Any, ...]:
    return (error.time, error.request_id, error.response_id or "", error.route, error.status, error.code)


def _merge_alike(
    documents: Sequence[Status], field: str, key: str, merge_parts: Callable[[list[Any]], _Part]
) -> tuple[_Part, ...]:
    """Merge those entries of one field that have the same key."""
    alike: defaultdict[str, list[_Part]] = defaultdict(list)
    for document in documents:
        for part in getattr(document, field):
            alike[getattr(part, key)].append(part)
    return tuple(merge_parts(alike[name]) for name in sorted(alike))


def _merge_upstreams(servers: list[UpstreamStatus]) -> UpstreamStatus:
    worst = min(servers, key=lambda one: (one.healthy, -one.checked_at, one.detail, one.dialect, one.url))
    return _fold(servers, worst, breaker=max((one.breaker for one in servers), key=BREAKERS.index))


def _merge_storage(stores: list[StorageStatus]) -> StorageStatus:
    worst = min(stores, key=attrgetter("healthy", "detail", "database"))
    return _fold(stores, worst, failures=sum(one.failures for one in stores))


def _merge_limits(limits: list[LimitUse]) -> LimitUse:
    return _fold(
        limits, limits[0], limit=max(one.limit for one in limits), breaches=sum(one.breaches for one in limits)
    )


def _merge_outcomes(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    counts: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        counts[outcome.transport, outcome.status] += outcome.count
    return tuple(
        Outcome(transport=transport, status=status, count=count)
        for (transport, status), count in sorted(counts.items())
    )


def _add_counts(parts: list[_Part]) -> _Part:
    """Return one part with the sum of each number of all."""
    numbers = (name for name in parts[0].__struct_fields__ if isinstance(getattr(parts[0], name), int))
    return structs.replace(parts[0], **{name: sum(getattr(part, name) for part in parts) for name in numbers})


def _fold(parts: Sequence[_Part], base: _Part, **known: Any) -> _Part:
    """Return the base with the sum of all parts in every use and distribution, and with what is known already."""
    for name in base.__struct_fields__:
        values = [getattr(part, name) for part in parts]
        if isinstance(values[0], Use):
            known[name] = _sum_uses(values)
        elif isinstance(values[0], Distribution):
            known[name] = add_up(values)
    return structs.replace(base, **known)


def _sum_uses(uses: Sequence[Use]) -> Use:
    limits = [one.limit for one in uses if one.limit is not None]
    return Use(
        now=sum(one.now for one in uses),
        high=sum(one.high for one in uses),
        limit=sum(limits) if limits else None,
    )
