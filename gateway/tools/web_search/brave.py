"""Brave Search."""

from collections.abc import Iterator
from typing import Any

from gateway.tools.web_search.provider import Call, Found, Question, build_get, read_results

_LONGEST_QUERY = 400


class Brave:
    """Asks the Brave Search API; see `provider.Provider`."""

    url = "https://api.search.brave.com"

    def ask(self, question: Question, key: str) -> Call:
        """Return what to send for a question; where the domains make it too long, it goes without them."""
        words = question.with_operators()
        return Call(
            target=build_get(
                "/res/v1/web/search",
                q=words if len(words) <= _LONGEST_QUERY else question.text,
                count=question.count,
                country=question.country,
                text_decorations="false",
                result_filter="web",
                extra_snippets="true" if question.depth == "high" else "",
            ),
            headers={"X-Subscription-Token": key},
        )

    def read(self, answer: Any) -> Iterator[Found]:
        """Yield the results of an answer."""
        web = answer.get("web") if isinstance(answer, dict) else None
        return read_results(web.get("results") if isinstance(web, dict) else None, ("description", "extra_snippets"))
