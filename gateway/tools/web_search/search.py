"""Web search for every response of the process."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.config.schema import WebSearchConfig
from gateway.ports.tools import ToolContext
from gateway.protocol.errors import InvalidRequest
from gateway.telemetry.metrics import Metrics
from gateway.tools.web_search.brave import Brave
from gateway.tools.web_search.client import SearchClient
from gateway.tools.web_search.declaration import is_web_search, read_declaration
from gateway.tools.web_search.provider import Provider
from gateway.tools.web_search.searxng import Searxng
from gateway.tools.web_search.tavily import Tavily
from gateway.tools.web_search.toolkit import SearchToolkit

PROVIDERS: Mapping[str, type[Provider]] = {"searxng": Searxng, "brave": Brave, "tavily": Tavily}


class WebSearch:
    """The tools of the types `web_search` and `web_search_preview`, dated ones included; see `ports.Tools`.

    Args:
        config: whom to ask, and bounds; the provider is not `off`.
        metrics: counts queries.

    Raises:
        CertificateFileError: the file of certificate authorities cannot be used.
    """

    def __init__(self, config: WebSearchConfig, metrics: Metrics) -> None:
        self._config = config
        self._metrics = metrics
        self._provider = PROVIDERS[config.provider]()
        self._client = SearchClient(config, config.url or self._provider.url)

    def runs(self, kind: str) -> bool:
        """Whether it runs tools of this declared type."""
        return is_web_search(kind)

    def check(self, declared: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Check the declarations of one request, of which there may be one.

        Raises:
            InvalidRequest: names the parameter at fault.
        """
        for path, tool in declared:
            read_declaration(tool, path)
        for path, _ in declared[1:]:
            raise InvalidRequest(
                f"'{path}' declares web search again; one is enough.", code="invalid_value", param=f"{path}.type"
            )

    def open(self, declared: Sequence[Mapping[str, Any]], context: ToolContext) -> SearchToolkit:
        """Return the toolkit of one response."""
        declaration = read_declaration(declared[0], "tools")
        return SearchToolkit(self._provider, self._client, self._config, self._metrics, declaration, context)

    def show(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        """Return a declaration as the response object echoes it, with the defaults that the API names."""
        return {"filters": None, "search_context_size": "medium", "user_location": None, **tool}

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()
