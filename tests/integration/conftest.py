"""One scripted upstream and one gateway with default limits for the whole run; tests that need others start them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack

import pytest
from harness.processes import Gateway
from harness.reports import pytest_runtest_makereport
from harness.upstream import Upstream

__all__ = ["pytest_runtest_makereport"]


class GatewayStarter:
    """Starts further gateways, stopped at the end of the test."""

    def __init__(self, upstream: Upstream, folders: pytest.TempPathFactory, running: ExitStack) -> None:
        self.started: list[Gateway] = []
        self._upstream = upstream
        self._folders = folders
        self._running = running

    def __call__(self, settings: Mapping[str, str] | None = None, url: str | None = None) -> Gateway:
        """Start one with its own settings, in front of the scripted upstream unless another URL is given."""
        gateway = Gateway(self._folders.mktemp("gateway"), url or self._upstream.url, settings)
        self.started.append(gateway)
        return self._running.enter_context(gateway)


@pytest.fixture(scope="session")
def upstream() -> Iterator[Upstream]:
    """The scripted inference server; scripts are told apart by model name."""
    with Upstream() as running:
        yield running


@pytest.fixture(scope="session")
def gateway(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with default settings in front of `upstream`."""
    with Gateway(tmp_path_factory.mktemp("gateway"), upstream.url) as running:
        yield running


@pytest.fixture(scope="session")
def hasty(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that gives the upstream half a second to begin."""
    settings = {"upstream.first_byte_timeout_seconds": "0.5"}
    with Gateway(tmp_path_factory.mktemp("hasty"), upstream.url, settings) as running:
        yield running


@pytest.fixture(scope="session")
def impatient(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway that gives the upstream, once it has begun, half a second of silence."""
    settings = {"upstream.idle_timeout_seconds": "0.5"}
    with Gateway(tmp_path_factory.mktemp("impatient"), upstream.url, settings) as running:
        yield running


@pytest.fixture
def serving(request: pytest.FixtureRequest) -> Gateway:
    """The gateway for a fault of the upstream: the one limit that is to end is short, and no other."""
    stalls, begun = "stalls" in request.node.name, "stalls mid stream" in request.node.name
    running: Gateway = request.getfixturevalue("impatient" if begun else "hasty" if stalls else "gateway")
    return running


@pytest.fixture
def start_gateway(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayStarter]:
    """Starts gateways of the test's own."""
    with ExitStack() as running:
        yield GatewayStarter(upstream, tmp_path_factory, running)
