"""What this process tells of itself."""

import os
import platform
from collections import defaultdict
from collections.abc import Iterator, Mapping

from gateway import __version__
from gateway.app.parts import Parts
from gateway.config.schema import GatewayConfig
from gateway.engine.usage import UsageBook
from gateway.ports import Upstream
from gateway.protocol.errors import RequestTooLarge
from gateway.telemetry.histogram import Histogram
from gateway.telemetry.loads import Level
from gateway.telemetry.merge import merge
from gateway.telemetry.metrics import Metrics, read_values
from gateway.telemetry.principals import LARGEST, PrincipalTokens
from gateway.telemetry.status import (
    BREAKERS,
    AgentUse,
    BackgroundUse,
    Clients,
    Lanes,
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

_DETAIL_CHARACTERS = 300


async def take_status(parts: Parts, config: GatewayConfig, *, started: float, draining: bool) -> Status:
    """Return what the process tells of itself now. Takes as long as the store's bounded probe.

    Args:
        parts: what it consists of.
        config: in effect.
        started: Unix seconds at which it began.
        draining: it is shutting down.
    """
    metrics = parts.metrics
    metrics.refresh()
    process = Process(pid=os.getpid(), started=started, responses=metrics.active_responses.now)
    status = Status(
        time=parts.clock.now(),
        version=__version__,
        python=platform.python_version(),
        started=started,
        draining=draining,
        auth=config.auth.mode,
        processes=(process,),
        upstreams=tuple(_tell_upstreams(parts.upstreams, config, metrics)),
        storage=await _tell_storage(parts, config),
        clients=_tell_clients(metrics, config),
        lanes=_tell_lanes(metrics, config),
        background=BackgroundUse(
            running=_tell_use(metrics.background_load.running, config.background.max_running),
            queued=_tell_use(metrics.background_load.queued, config.background.max_queued),
            readers=_tell_use(metrics.background_readers),
        ),
        tools=ToolUse(
            running=_tell_use(metrics.tool_load.running, config.tools.max_concurrent_materializations),
            waiting=_tell_use(metrics.tool_load.waiting),
            mcp_sessions=_tell_use(metrics.mcp_sessions),
        ),
        agents=AgentUse(active=_tell_use(metrics.agents_active)),
        limits=tuple(_tell_limits(metrics, config)),
        rejections=tuple(
            Rejection(key=key, count=count) for (key,), count in read_values(metrics.rejections_total).items()
        ),
        tokens=tuple(_tell_tokens(metrics)),
        principals=tuple(_tell_principals(parts.engine.usage)),
        responses=tuple(
            Outcome(transport=transport, status=status, count=count)
            for (transport, status), count in read_values(metrics.responses_total).items()
        ),
        latency=Latency(
            first_token=metrics.ttft_seconds.read(),
            inter_token=metrics.inter_token_seconds.read(),
            upstream_first_byte=metrics.upstream_ttfb_seconds.read(),
        ),
        last_errors=metrics.last_errors.list(),
    )
    return merge([status])


def _tell_upstreams(
    upstreams: Mapping[str, Upstream], config: GatewayConfig, metrics: Metrics
) -> Iterator[UpstreamStatus]:
    breakers = read_values(metrics.upstream_breaker_state)
    for name, settings in config.upstream_map().items():
        upstream, calls = upstreams[name], metrics.calls[name]
        yield UpstreamStatus(
            name=name,
            url=settings.url,
            dialect=upstream.health.dialect,
            healthy=upstream.health.healthy,
            detail=upstream.redact(upstream.health.detail)[:_DETAIL_CHARACTERS],
            checked_at=upstream.health.checked_at,
            breaker=BREAKERS[breakers.get((name,), 0)],
            running=_tell_use(calls.running, settings.max_concurrent),
            waiting=_tell_use(calls.waiting),
        )


async def _tell_storage(parts: Parts, config: GatewayConfig) -> StorageStatus:
    metrics, storage = parts.metrics, config.storage
    health = await parts.store.probe()
    return StorageStatus(
        database=storage.url.redacted,
        healthy=health.healthy,
        detail=health.detail[:_DETAIL_CHARACTERS],
        queue_entries=_tell_use(metrics.storage_load.entries, storage.writer_max_entries),
        queue_bytes=_tell_use(metrics.storage_load.bytes, storage.writer_max_bytes),
        commit_seconds=metrics.storage_append_seconds.read(),
        read_seconds=metrics.storage_read_seconds.read(),
        failures=sum(read_values(metrics.storage_failures_total).values()),
    )


def _tell_clients(metrics: Metrics, config: GatewayConfig) -> Clients:
    return Clients(
        connections=_tell_use(metrics.client_connections, config.server.max_connections),
        responses=_tell_use(metrics.active_responses, config.server.max_concurrent_requests),
        delivery_batches=_tell_use(metrics.delivery_load.batches),
        delivery_bytes=_tell_use(metrics.delivery_load.bytes),
    )


def _tell_lanes(metrics: Metrics, config: GatewayConfig) -> Lanes:
    load = metrics.socket_load
    return Lanes(
        connections=_tell_use(load.connections, config.websocket.max_connections),
        running=_tell_use(load.running),
        waiting=_tell_use(load.waiting),
        outstanding_bytes=_tell_use(load.outstanding_bytes),
        session_bytes=_tell_use(load.session_bytes),
    )


def _tell_limits(metrics: Metrics, config: GatewayConfig) -> Iterator[LimitUse]:
    breaches = read_values(metrics.limit_breaches_total)
    sizes: dict[str, Histogram] = {
        "max_retained_bytes": metrics.retained_bytes,
        "max_stream_event_bytes": metrics.stream_event_bytes,
        "max_upstream_json_bytes": metrics.upstream_json_bytes,
        "max_upstream_sse_line_bytes": metrics.upstream_line_bytes,
    }
    for key, seen in sizes.items():
        yield LimitUse(
            key=f"responses.{key}",
            limit=getattr(config.responses, key),
            breaches=breaches.get((key,), 0),
            seen=seen.read(),
        )
    yield LimitUse(
        key="server.max_request_body_bytes",
        limit=config.server.max_request_body_bytes,
        breaches=read_values(metrics.response_errors_total).get((RequestTooLarge.code,), 0),
        seen=metrics.request_body_bytes.read(),
    )
    yield LimitUse(
        key="websocket.max_message_bytes",
        limit=config.websocket.max_message_bytes,
        breaches=read_values(metrics.websocket_errors_total).get((RequestTooLarge.code,), 0),
        seen=metrics.websocket_message_bytes.read(),
    )


def _tell_tokens(metrics: Metrics) -> Iterator[Tokens]:
    counts: defaultdict[str, dict[str, int]] = defaultdict(dict)
    for (model, kind), count in read_values(metrics.tokens_total).items():
        counts[model][kind] = count
    return (Tokens(model=model, **kinds) for model, kinds in counts.items())


def _tell_principals(usage: UsageBook) -> Iterator[PrincipalTokens]:
    for principal, tally in usage.list_largest(LARGEST):
        yield PrincipalTokens(
            principal=principal,
            responses=tally.responses,
            input=tally.input,
            cached=tally.cached,
            output=tally.output,
            reasoning=tally.reasoning,
        )


def _tell_use(level: Level, limit: int | None = None) -> Use:
    return Use(now=level.now, high=level.high, limit=limit)
