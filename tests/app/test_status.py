"""What a process tells of itself, against parts that were made to do something."""

import os

import pytest
from msgspec import structs

from gateway.app import Gateway, build_parts
from gateway.config.schema import GatewayConfig, ServerConfig, StorageConfig, UpstreamConfig
from gateway.config.secret import SecretUrl
from gateway.ports import StoreHealth, UpstreamHealth
from gateway.protocol.errors import ResourceLimitExceeded
from gateway.protocol.response import Usage
from gateway.storage.memory import MemoryStore
from gateway.telemetry.status import Tokens

HOSTILE = "<script>alert(1)</script> s3cret " + "x" * 1000


class Server:
    """An inference server of which only its last known health matters."""

    health = UpstreamHealth(healthy=False, detail=HOSTILE, checked_at=7, dialect="vllm")

    def redact(self, text):
        return text.replace("s3cret", "[redacted]")


class SickStore(MemoryStore):
    async def probe(self):
        return StoreHealth(healthy=False, detail="The disk is full.")


@pytest.fixture
def gateway():
    config = GatewayConfig(
        upstream=UpstreamConfig(url="http://gpu:8000", max_concurrent=7),
        server=ServerConfig(max_connections=5),
        storage=StorageConfig(url=SecretUrl("postgresql://me:hunter2@db/responses")),
    )
    return Gateway(build_parts(config, store=SickStore(), upstreams={"default": Server()}))


async def test_a_fresh_process_tells_who_it_is(gateway):
    status = await gateway.read_status()
    (process,) = status.processes
    assert (process.pid, process.started, process.responses) == (os.getpid(), status.started, 0)
    assert status.started <= status.time
    assert (status.auth, status.draining, status.responses, status.last_errors) == ("none", False, (), ())


async def test_a_drain_is_told(gateway):
    gateway.begin_drain()
    assert (await gateway.read_status()).draining


async def test_servers_are_told_with_their_load_and_without_their_secrets(gateway):
    calls = gateway.parts.metrics.calls["default"]
    calls.running.set(3)
    calls.running.set(2)
    calls.waiting.set(1)
    gateway.parts.metrics.watch(gateway.parts.metrics.upstream_breaker_state, lambda: 2, "default")
    (server,) = (await gateway.read_status()).upstreams
    assert (server.name, server.url, server.dialect, server.checked_at) == ("default", "http://gpu:8000", "vllm", 7)
    assert (server.healthy, server.breaker) == (False, "open")
    assert (server.running.now, server.running.high, server.running.limit) == (2, 3, 7)
    assert (server.waiting.now, server.waiting.limit) == (1, None)
    assert "s3cret" not in server.detail
    assert len(server.detail) == 300


async def test_the_database_is_told_without_its_password(gateway):
    metrics = gateway.parts.metrics
    metrics.storage_load.entries.set(4)
    metrics.defer(metrics.storage_append_seconds, 0.25)
    metrics.storage_failures_total.inc()
    storage = (await gateway.read_status()).storage
    assert (storage.healthy, storage.detail) == (False, "The disk is full.")
    assert storage.database == "postgresql://me:***@db/responses"
    assert (storage.queue_entries.now, storage.queue_entries.limit) == (4, 1024)
    assert (storage.commit_seconds.count, storage.commit_seconds.max, storage.failures) == (1, 0.25, 1)


async def test_limits_are_told_beside_what_was_seen(gateway):
    metrics = gateway.parts.metrics
    metrics.defer(metrics.retained_bytes, 5000)
    metrics.limit_breaches_total.labels(ResourceLimitExceeded("max_retained_bytes", 1).resource).inc()
    metrics.response_errors_total.labels("request_too_large").inc(2)
    metrics.websocket_errors_total.labels("request_too_large").inc(3)
    metrics.websocket_errors_total.labels("invalid_json").inc(9)
    limits = {limit.key: limit for limit in (await gateway.read_status()).limits}
    retained = limits["responses.max_retained_bytes"]
    assert (retained.limit, retained.breaches, retained.seen.count, retained.seen.max) == (8 * 1024**2, 1, 1, 5000)
    assert {key: limit.breaches for key, limit in limits.items() if limit.breaches} == {
        "responses.max_retained_bytes": 1,
        "server.max_request_body_bytes": 2,
        "websocket.max_message_bytes": 3,
    }
    assert all(getattr(getattr(gateway.config, section), key) == limits[f"{section}.{key}"].limit
               for section, _, key in (name.partition(".") for name in limits))  # fmt: skip


async def test_what_clients_hold_is_told_against_the_limits_in_effect(gateway):
    metrics = gateway.parts.metrics
    metrics.client_connections.set(3)
    metrics.socket_load.waiting.set(2)
    metrics.responses_total.labels("sse", "completed").inc(4)
    metrics.note_rejection("server.max_connections")
    metrics.count_usage("m", Usage(input_tokens=3, output_tokens=2))
    server = structs.replace(gateway.config.server, max_connections=9)
    gateway.reload(structs.replace(gateway.config, server=server))
    with gateway.parts.engine.admit("local"):
        status = await gateway.read_status()
    assert (status.clients.connections.now, status.clients.connections.limit) == (3, 9)
    assert (status.clients.responses.now, status.processes[0].responses) == (1, 1)
    assert status.lanes.waiting.now == 2
    assert [(one.key, one.count) for one in status.rejections] == [("server.max_connections", 1)]
    assert status.tokens == (Tokens(model="m", input=3, output=2),)
    assert [(one.transport, one.status, one.count) for one in status.responses] == [("sse", "completed", 4)]
