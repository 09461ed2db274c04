"""What a gateway tells of itself."""

from typing import Final, Literal

from msgspec import Struct

from gateway.telemetry.distribution import Distribution
from gateway.telemetry.principals import PrincipalTokens

LAST_ERRORS: Final = 50
"""How many failures a process remembers, and a document tells."""

Breaker = Literal["closed", "half_open", "open"]
BREAKERS: Final[tuple[Breaker, ...]] = ("closed", "half_open", "open")
"""The states of a circuit breaker, by the numbers of the metric; each is worse than the one before."""


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


class ToolUse(Struct, frozen=True, kw_only=True):
    """What the gateway's own tools do.

    Attributes:
        running: calls and listings that run.
        waiting: those that wait for their turn.
        mcp_sessions: sessions with MCP servers that are open, those kept for the next response included.
    """

    running: Use
    waiting: Use
    mcp_sessions: Use


class AgentUse(Struct, frozen=True, kw_only=True):
    """What the agents of responses do that several make.

    Attributes:
        active: agents that have work.
    """

    active: Use


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
        tools: what the gateway's own tools do.
        agents: what agents do, where several make a response.
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
    tools: ToolUse
    agents: AgentUse
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
