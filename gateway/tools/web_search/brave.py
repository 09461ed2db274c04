"""Brave Search."""

from collections.abc import Iterator
from typing import Any

from gateway.tools.web_search.provider import Call, Found, Question, build_get, read_results

_LONGEST_QUERY = 400
_MOST_WORDS = 50
_PLACE_HEADERS = {
    "country": "X-Loc-Country",
    "region": "X-Loc-State-Name",
    "city": "X-Loc-City",
    "timezone": "X-Loc-Timezone",
}


class Brave:
    """Asks the Brave Search API; see `provider.Provider`."""

    url = "https://api.search.brave.com"

    def ask(self, question: Question, key: str) -> Call:
        """Return what to send for a question; where the domains make it too long, it goes without them."""
        words = question.with_operators()
        if len(words) > _LONGEST_QUERY or len(words.split()) > _MOST_WORDS:
            words = " ".join(question.text.split()[:_MOST_WORDS])
        places = ((header, question.place.get(name, "")) for name, header in _PLACE_HEADERS.items())
        # No header carries more than ASCII.
        told = {header: place for header, place in places if place and place.isascii()}
        return Call(
            target=build_get(
                "/res/v1/web/search",
                q=words,
                count=question.count,
                text_decorations="false",
                result_filter="web",
                extra_snippets="true" if question.depth == "high" else "",
            ),
            headers={"X-Subscription-Token": key, **told},
        )

    def read(self, answer: Any) -> Iterator[Found]:
        """Yield the results of an answer."""
        web = answer.get("web") if isinstance(answer, dict) else None
        return read_results(web.get("results") if isinstance(web, dict) else None, ("description", "extra_snippets"))
