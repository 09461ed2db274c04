import asyncio

import httpx
import pytest
import uvloop
from harness.virtual_time import VirtualLoop
from transport.sockets import Site

from gateway.ports import StoreHealth, UpstreamHealth

# The gateway runs on uvloop, whose transports differ from asyncio's in small ways.
_ON_BOTH_LOOPS = frozenset(
    {
        "test_protocol",
        "test_protocol_bounds",
        "test_socket_protocol",
        "test_socket_protocol_bounds",
        "test_socket_protocol_reading",
        "test_tls",
        "test_upgrade",
    }
)

# What has neither sockets nor threads waits for no time.
_IN_VIRTUAL_TIME = frozenset(
    {
        "test_connection",
        "test_controls",
        "test_conversation",
        "test_http",
        "test_lanes",
        "test_lanes_access",
        "test_lanes_end",
        "test_lanes_faults",
        "test_outbound",
        "test_sse",
        "test_steering",
    }
)


def pytest_asyncio_loop_factories(config, item):
    module = item.module.__name__.rpartition(".")[2]
    if module in _IN_VIRTUAL_TIME:
        return {"virtual": VirtualLoop}
    loops = {"asyncio": asyncio.new_event_loop}
    if module in _ON_BOTH_LOOPS:
        loops["uvloop"] = uvloop.new_event_loop
    return loops


class StubStore:
    """A store of which only its health matters."""

    def __init__(self):
        self.healthy = True

    async def probe(self):
        return StoreHealth(
            healthy=self.healthy, detail="The database answers." if self.healthy else "The disk is full."
        )


class StubUpstream:
    """An inference server of which only its last known health matters."""

    def __init__(self):
        self.healthy = True

    @property
    def health(self):
        return UpstreamHealth(
            healthy=self.healthy, detail="ok" if self.healthy else "No connection.", checked_at=0, dialect="vllm"
        )


@pytest.fixture
def store():
    return StubStore()


@pytest.fixture
def upstreams():
    return {"default": StubUpstream()}


@pytest.fixture
def call():
    """Send one request to an ASGI app and return the answer."""

    def redact(self, text):
        return text.replace("s3cret", "[redacted]")

    async def send(app, method, path, **options):
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await client.request(method, path, **options)

    return send


@pytest.fixture
async def serve():
    """Start servers with the given `[server]` keys; none outlives the test."""
    sites = []

    async def begin(tls=None, **settings):
        sites.append(Site(settings, tls))
        await sites[-1].start()
        return sites[-1]

    yield begin
    for site in sites:
        await site.close()
