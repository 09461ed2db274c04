"""The web search of one response."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from gateway.config.schema import WebSearchConfig
from gateway.ports.tools import ApprovedCall, HostedCall, HostedResult, HostedTool, Listing, ToolContext
from gateway.protocol.hosted import fail_call, read_queries
from gateway.protocol.ledger import text_bytes
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.names import FIELD_OUTCOME, LOGGER_TOOLS
from gateway.tools.web_search.client import Outcome, SearchClient, SearchFailed
from gateway.tools.web_search.declaration import Declaration
from gateway.tools.web_search.findings import Findings, interleave
from gateway.tools.web_search.provider import Found, Provider, Question

INCLUDE_SOURCES = "web_search_call.action.sources"
INCLUDE_RESULTS = "web_search_call.results"

_RESULTS = {"low": 3, "medium": 6, "high": 20}
_LONGEST_QUERY = 400
_NO_QUERY = 'The search was not run: write what to look for as {"queries": ["..."]}.'
_QUERY_FAILED = "A query failed: {failure}."
_TOO_MANY = "Only the first {most} queries were asked."
_FAILED = "The search failed: {failures}. Answer without it, and say so where it matters."

_BOUNDS: Mapping[Outcome, str] = {
    "timeout": "web_search.timeout_seconds",
    "too_large": "web_search.max_response_bytes",
}

_logger = logging.getLogger(LOGGER_TOOLS)


class SearchToolkit:
    """Offers the model one function and runs its calls; see `ports.Toolkit`.

    Args:
        provider: whom to ask.
        client: by which way.
        config: bounds, and the key.
        metrics: counts queries.
        declaration: what the request wants.
        context: of the response.
    """

    listings: Sequence[Listing] = ()
    decided: Sequence[ApprovedCall] = ()

    def __init__(
        self,
        provider: Provider,
        client: SearchClient,
        config: WebSearchConfig,
        metrics: Metrics,
        declaration: Declaration,
        context: ToolContext,
    ) -> None:
        self._provider = provider
        self._client = client
        self._config = config
        self._metrics = metrics
        self._declaration = declaration
        self._include = context.include
        self._findings = Findings(declaration.depth, config.max_output_bytes)
        function = describe_function(declaration, config.max_queries, choose_name(context.names))
        self.offered: Sequence[HostedTool] = (
            HostedTool(function=function, kind="web_search_call", name=function["name"]),
        )

    async def run(self, call: HostedCall) -> HostedResult:
        """Run one call; see `ports.Toolkit`."""
        most = self._config.max_queries
        given = read_lines(call.arguments)
        queries = given[:most]
        if not queries:
            return fail_call(call.tool, _NO_QUERY)
        async with asyncio.TaskGroup() as asking:
            tasks = [asking.create_task(self._ask(query)) for query in queries]
        answers = [task.result() for task in tasks]
        failures = [str(answer) for answer in answers if isinstance(answer, SearchFailed)]
        if len(failures) == len(queries):
            failed = fail_call(call.tool, _FAILED.format(failures="; ".join(dict.fromkeys(failures))))
            return HostedResult(
                output=failed.output,
                size=failed.size,
                fields={"status": "failed", "action": _act(queries)},
                failed=True,
            )
        found = interleave([answer for answer in answers if isinstance(answer, list)])
        notes = [_QUERY_FAILED.format(failure=failure) for failure in failures]
        if len(given) > most:
            self._metrics.note_rejection("web_search.max_queries")
            notes.append(_TOO_MANY.format(most=most))
        told = self._findings.tell(found, notes)
        action = _act(queries)
        if INCLUDE_SOURCES in self._include:
            action["sources"] = [{"type": "url", "url": source.url} for source in told.sources]
        fields: dict[str, Any] = {"status": "completed", "action": action}
        if INCLUDE_RESULTS in self._include:
            fields["results"] = told.results
        return HostedResult(output=told.text, size=text_bytes(told.text), fields=fields, sources=told.sources)

    async def close(self) -> None:
        """Release nothing: connections are the provider's, not the response's."""

    async def _ask(self, query: str) -> list[Found] | SearchFailed:
        wanted = min(_RESULTS[self._declaration.depth], self._config.max_results)
        question = Question(
            text=query,
            count=wanted,
            depth=self._declaration.depth,
            place=self._declaration.place,
            allowed=self._declaration.allowed,
            blocked=self._declaration.blocked,
        )
        key = self._config.api_key
        try:
            answer = await self._client.ask(self._provider.ask(question, key.reveal() if key is not None else ""))
        except SearchFailed as failure:
            self._count(failure.outcome)
            _logger.warning(
                "a query to the search provider failed: %s", failure, extra={FIELD_OUTCOME: failure.outcome}
            )
            return failure
        self._count("answered")
        permitted = (found for found in self._provider.read(answer) if self._declaration.permits(found.url))
        return list(islice(permitted, wanted))

    def _count(self, outcome: Outcome) -> None:
        self._metrics.web_search_queries_total.labels(outcome).inc()
        self._metrics.note_rejection(_BOUNDS.get(outcome))


def choose_name(taken: frozenset[str]) -> str:
    """Return the name of the function: `web_search`, unless a tool of the client's has it."""
    name, number = "web_search", 1
    while name in taken:
        number += 1
        name = f"web_search_{number}"
    return name


def describe_function(declaration: Declaration, max_queries: int, name: str) -> dict[str, Any]:
    """Return the function tool that the model is offered."""
    parts = [
        "Search the web for what you do not know or what may have changed, and get numbered sources to cite.",
        f"At most {max_queries} queries at once; each is words for a search engine.",
    ]
    if declaration.place:
        parts.append("The user is at: " + ", ".join(declaration.place.values()) + ".")
    if declaration.allowed:
        parts.append("Only these sites are searched: " + ", ".join(declaration.allowed) + ".")
    queries = {
        "type": "array",
        "items": {"type": "string", "minLength": 1},
        "minItems": 1,
        "maxItems": max_queries,
        "description": "What to look for.",
    }
    return {
        "type": "function",
        "name": name,
        "description": " ".join(parts),
        # Engines hold a model to the form of its arguments where it is strict, and not always elsewhere.
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"queries": queries},
            "required": ["queries"],
            "additionalProperties": False,
        },
    }


def read_lines(arguments: str) -> list[str]:
    """Return the queries of a call, each once, on one line and not too long."""
    # Half a surrogate pair is nothing that could be sent.
    texts = (query.encode("utf-8", "replace").decode() for query in read_queries(arguments))
    lines = (" ".join(text.split())[:_LONGEST_QUERY] for text in texts)
    return list(dict.fromkeys(filter(None, lines)))


def _act(queries: Sequence[str]) -> dict[str, Any]:
    return {"type": "search", "query": queries[0], "queries": list(queries)}
