import asyncio

import pytest
from tools.web_search.scripted import KEY, ScriptedProvider

from gateway.config.schema import WebSearchConfig
from gateway.config.secret import Secret
from gateway.telemetry.metrics import Metrics
from gateway.tools.web_search.search import WebSearch


@pytest.fixture
async def provider():
    scripted = ScriptedProvider()
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
    scripted.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    yield scripted
    server.close()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def search(provider, metrics):
    """Return a maker of web searches against the scripted provider."""
    made: list[WebSearch] = []

    def make(name: str = "searxng", **changes) -> WebSearch:
        keys = {"url": provider.url, "api_key": Secret(KEY), "allow_private_addresses": True, "timeout_seconds": 20.0}
        made.append(WebSearch(WebSearchConfig(**{"provider": name, **keys, **changes}), metrics))
        return made[-1]

    yield make
    for one in made:
        await one.close()
        await one.close()
