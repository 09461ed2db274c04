import ssl
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trustme
from cassette.provider import Provider, provided

from gateway.cassette.bounds import Bounds
from gateway.cassette.format import Cassette, read_cassette
from gateway.cassette.recorder import MemorySink
from gateway.cassette.recording import Outcome, record_scenario
from gateway.cassette.scenarios import SCENARIOS
from gateway.cassette.stage import Settings

KEY = "sk-live-0123456789abcdef"

Record = Callable[..., Awaitable[tuple[Outcome, Cassette]]]


@pytest.fixture
def record() -> Record:
    """Record a scenario with a provider, in memory."""

    async def play(
        name: str,
        provider: Provider | None = None,
        bounds: Bounds | None = None,
        *,
        tell=lambda _line: None,
        **settings: Any,
    ):
        sink = MemorySink()
        chosen = bounds or Bounds(step_seconds=20, close_seconds=5)
        async with provided(provider or Provider()) as url:
            known = Settings(url=url, model="sim", key=KEY, bounds=chosen, **settings)
            outcome = await record_scenario(SCENARIOS[name], known, sink, tell=tell)
        return outcome, read_cassette(iter(sink.lines))

    return play


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def tls(authority) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """The contexts of a server on loopback and of a client that trusts it."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context()
    authority.issue_cert("127.0.0.1").configure_cert(server)
    authority.configure_trust(client)
    return server, client
