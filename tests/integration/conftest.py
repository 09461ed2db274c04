"""One scripted upstream and one gateway with default limits for the whole run; tests that need others start them."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack

import pytest
from harness.processes import Gateway
from harness.upstream import Upstream

StartGateway = Callable[..., Gateway]


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


@pytest.fixture
def start_gateway(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartGateway]:
    """Starts further gateways, stopped at the end of the test."""
    with ExitStack() as running:

        def start(settings: Mapping[str, str] | None = None, url: str | None = None) -> Gateway:
            folder = tmp_path_factory.mktemp("gateway")
            return running.enter_context(Gateway(folder, url or upstream.url, settings))

        yield start
