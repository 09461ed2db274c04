"""SearXNG, a metasearch engine that one runs oneself; its `search.formats` must list `json`."""

from collections.abc import Iterator
from typing import Any

from gateway.tools.web_search.provider import Call, Found, Question, build_get, read_results


class Searxng:
    """Asks an instance of SearXNG; see `provider.Provider`."""

    url = ""

    def ask(self, question: Question, key: str) -> Call:
        """Return what to send for a question; it has no say in the number of results."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        return Call(target=build_get("/search", q=question.with_operators(), format="json"), headers=headers)

    def read(self, answer: Any) -> Iterator[Found]:
        """Yield the results of an answer."""
        return read_results(answer.get("results") if isinstance(answer, dict) else None, ("content",))
