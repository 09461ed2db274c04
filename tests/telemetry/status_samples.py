"""Documents of processes, as any could be."""

from bisect import bisect_left

from hypothesis import strategies as st
from msgspec import Struct, structs

from gateway.telemetry.distribution import Distribution, distribute
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.principals import PrincipalTokens
from gateway.telemetry.status import (
    BREAKERS,
    AgentUse,
    BackgroundUse,
    Clients,
    Lanes,
    LastError,
    Latency,
    LimitUse,
    Outcome,
    Process,
    Rejection,
    Status,
    StorageStatus,
    Tokens,
    ToolUse,
    UpstreamStatus,
    Use,
)

BOUNDS = (1.0, 10.0, 100.0)
SECONDS = Metrics().ttft_seconds.read().bounds
BYTES = Metrics().retained_bytes.read().bounds
WORDS = st.sampled_from(["a", "b", "c"])
TIMES = st.integers(0, 20).map(float)
COUNTS = st.integers(0, 5)
HOSTILE = """</style><script>document.title = "taken"</script>"'><img src=x onerror=alert(2)>""" + "W" * 200


def _distribute(values, bounds=BOUNDS):
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    return distribute(bounds, counts, float(sum(values)), float(max(values, default=0)))


DISTRIBUTIONS = st.lists(st.integers(0, 1000), max_size=5).map(_distribute)
USES = st.builds(Use, now=COUNTS, high=COUNTS, limit=st.none() | COUNTS)
ERRORS = st.builds(
    LastError, time=TIMES, request_id=WORDS, response_id=st.none() | WORDS, route=WORDS, status=COUNTS, code=WORDS
)
st.register_type_strategy(Distribution, DISTRIBUTIONS)
st.register_type_strategy(Use, USES)

PROCESSES = st.builds(Process, pid=st.integers(1, 9), started=TIMES, responses=COUNTS)
UPSTREAMS = st.builds(
    UpstreamStatus,
    name=WORDS,
    url=WORDS,
    dialect=WORDS,
    detail=WORDS,
    checked_at=TIMES,
    breaker=st.sampled_from(BREAKERS),
)
LIMITS = st.builds(LimitUse, key=WORDS, limit=COUNTS, breaches=COUNTS)
REJECTIONS = st.builds(Rejection, key=WORDS, count=COUNTS)
TOKENS = st.builds(Tokens, model=WORDS, input=COUNTS, cached=COUNTS, output=COUNTS, reasoning=COUNTS)
PRINCIPALS = st.builds(PrincipalTokens, principal=WORDS, responses=COUNTS, input=COUNTS, output=COUNTS)
OUTCOMES = st.builds(Outcome, transport=WORDS, status=WORDS, count=COUNTS)


def _some(parts, told_apart_by):
    return st.lists(parts, max_size=3, unique_by=told_apart_by).map(tuple)


STATUSES = st.builds(
    Status,
    time=TIMES,
    started=TIMES,
    version=WORDS,
    python=WORDS,
    auth=WORDS,
    processes=_some(PROCESSES, lambda one: one.pid),
    upstreams=_some(UPSTREAMS, lambda one: one.name),
    limits=_some(LIMITS, lambda one: one.key),
    rejections=_some(REJECTIONS, lambda one: one.key),
    tokens=_some(TOKENS, lambda one: one.model),
    principals=_some(PRINCIPALS, lambda one: one.principal),
    responses=_some(OUTCOMES, lambda one: (one.transport, one.status)),
    last_errors=st.lists(ERRORS, max_size=3).map(tuple),
)
"""Documents of one process each, before they were merged with anything."""


def make_status(**fields):
    """A document of one process in which something of everything has happened."""
    use = Use(now=3, high=40, limit=100)
    status = Status(
        time=1_800_090_061.5,
        version="0.1.0",
        python="3.12.1",
        started=1_800_000_000.0,
        draining=False,
        auth="none",
        processes=(Process(pid=7, started=1_800_000_000.0, responses=3),),
        upstreams=(
            UpstreamStatus(
                name="default",
                url="http://127.0.0.1:8000",
                dialect="vllm",
                healthy=True,
                detail="ok",
                checked_at=1_800_090_060.0,
                breaker="closed",
                running=use,
                waiting=Use(now=1, high=2),
            ),
        ),
        storage=StorageStatus(
            database="sqlite:///responses.db",
            healthy=True,
            detail="The database answers.",
            queue_entries=use,
            queue_bytes=Use(now=2048, high=70_000, limit=268_435_456),
            commit_seconds=_distribute([0.004, 0.009, 0.2], SECONDS),
            read_seconds=_distribute([0.001], SECONDS),
            failures=0,
        ),
        clients=Clients(
            connections=use, responses=use, delivery_batches=Use(now=0, high=9), delivery_bytes=Use(now=0, high=90_000)
        ),
        background=BackgroundUse(running=use, queued=Use(now=1, high=2, limit=256), readers=Use(now=1, high=2)),
        agents=AgentUse(active=Use(now=3, high=5)),
        tools=ToolUse(running=use, waiting=Use(now=0, high=1), mcp_sessions=Use(now=1, high=2)),
        lanes=Lanes(
            connections=use,
            running=Use(now=2, high=8),
            waiting=Use(now=0, high=4),
            outstanding_bytes=Use(now=900, high=12_000),
            session_bytes=Use(now=5000, high=70_000),
        ),
        limits=(
            LimitUse(
                key="responses.max_retained_bytes",
                limit=1_048_576,
                breaches=2,
                seen=_distribute([800] * 90 + [5000] * 40 + [1_040_000], BYTES),
            ),
            LimitUse(key="server.max_request_body_bytes", limit=10_485_760, breaches=0, seen=_distribute([], BYTES)),
        ),
        rejections=(
            Rejection(key="server.max_concurrent_requests", count=17),
            Rejection(key="websocket.max_outstanding_bytes", count=1),
        ),
        principals=(PrincipalTokens(principal="ada", responses=2, input=1000, cached=10, output=500),),
        tokens=(Tokens(model="qwen-0.6b", input=120_000, cached=90_000, output=4321, reasoning=0),),
        responses=(
            Outcome(transport="json", status="completed", count=12),
            Outcome(transport="sse", status="completed", count=1200),
            Outcome(transport="sse", status="failed", count=3),
        ),
        latency=Latency(
            first_token=_distribute([0.03] * 40 + [0.07] * 20 + [2], SECONDS),
            inter_token=_distribute([0.02], SECONDS),
            upstream_first_byte=_distribute([0.01], SECONDS),
        ),
        last_errors=(
            LastError(
                time=1_800_090_000.25,
                request_id="req_0123456789abcdef0123456789abcdef",
                response_id="resp_0123456789abcdef0123456789abcdef",
                route="sse",
                status=502,
                code="response_resource_limit_exceeded",
            ),
            LastError(
                time=1_800_080_000.0,
                request_id="req_00000000000000000000000000000000",
                response_id=None,
                route="/v1/responses",
                status=400,
                code="invalid_type",
            ),
        ),
    )
    return structs.replace(status, **fields)


def spoil(value):
    """Return the same value with every text in it replaced by something hostile."""
    if isinstance(value, str):
        return value if value in BREAKERS else HOSTILE
    if isinstance(value, tuple):
        return tuple(map(spoil, value))
    if isinstance(value, Struct):
        return structs.replace(value, **{name: spoil(getattr(value, name)) for name in value.__struct_fields__})
    return value
