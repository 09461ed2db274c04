"""Tavily."""

from collections.abc import Iterator
from typing import Any

import msgspec

from gateway.tools.web_search.provider import Call, Found, Question, read_results


class Tavily:
    """Asks the Tavily Search API; see `provider.Provider`."""

    url = "https://api.tavily.com"

    def ask(self, question: Question, key: str) -> Call:
        """Return what to send for a question."""
        asked: dict[str, Any] = {
            "query": question.text,
            "max_results": question.count,
            "search_depth": "advanced" if question.depth == "high" else "basic",
        }
        if question.allowed:
            asked["include_domains"] = question.allowed
        if question.blocked:
            asked["exclude_domains"] = question.blocked
        return Call(
            method="POST",
            target="/search",
            headers={"Authorization": f"Bearer {key}", "Content-Type": "application/json"},
            body=msgspec.json.encode(asked),
        )

    def read(self, answer: Any) -> Iterator[Found]:
        """Yield the results of an answer."""
        return read_results(answer.get("results") if isinstance(answer, dict) else None, ("content",))
