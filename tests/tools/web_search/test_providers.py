import json

import pytest

from gateway.tools.web_search.brave import Brave
from gateway.tools.web_search.provider import Found, Question
from gateway.tools.web_search.searxng import Searxng
from gateway.tools.web_search.tavily import Tavily

PLAIN = Question(text="rain in Oslo", count=6)
PLACE = {"country": "NO", "city": "Ålesund", "timezone": "Europe/Oslo"}
NARROW = Question(
    text="rain", count=3, depth="high", place=PLACE, allowed=("yr.no", "met.no"), blocked=("spam.example",)
)
PAGE = {"url": "https://yr.no/", "title": "<b>Rain</b> &amp; sun"}


def test_searxng_is_asked_and_read():
    assert Searxng().ask(PLAIN, "").target == "/search?q=rain+in+Oslo&format=json"
    assert Searxng().ask(PLAIN, "").headers == {}
    call = Searxng().ask(NARROW, "k")
    assert "q=rain+%28site%3Ayr.no+OR+site%3Amet.no%29+-site%3Aspam.example" in call.target
    assert call.headers == {"Authorization": "Bearer k"}
    found = Searxng().read({"results": [{**PAGE, "content": "It\nrains. \x00"}]})
    assert list(found) == [Found("https://yr.no/", "Rain & sun", "It rains.")]


def test_brave_is_asked_and_read():
    call = Brave().ask(NARROW, "k")
    assert call.target.startswith("/res/v1/web/search?q=rain+%28site%3Ayr.no")
    assert "&count=3&" in call.target
    assert "extra_snippets=true" in call.target
    assert Brave().ask(PLAIN, "k").headers == {"X-Subscription-Token": "k"}
    assert call.headers == {
        "X-Subscription-Token": "k", "X-Loc-Country": "NO", "X-Loc-Timezone": "Europe/Oslo",
    }  # fmt: skip
    page = {**PAGE, "description": "It rains.", "extra_snippets": ["A lot.", 3]}
    assert list(Brave().read({"web": {"results": [page]}})) == [
        Found("https://yr.no/", "Rain & sun", "It rains. A lot.")
    ]


def test_brave_gets_no_longer_query_than_it_takes():
    many = Question(text="rain", count=3, allowed=tuple(f"site-number-{number}.example" for number in range(30)))
    assert Brave().ask(many, "k").target.startswith("/res/v1/web/search?q=rain&")
    wordy = Question(text="a " * 60 + "b", count=3)
    assert Brave().ask(wordy, "k").target.startswith("/res/v1/web/search?q=" + "a+" * 49 + "a&")


def test_tavily_is_asked_and_read():
    call = Tavily().ask(NARROW, "k")
    assert (call.method, call.target, call.headers["Authorization"]) == ("POST", "/search", "Bearer k")
    assert json.loads(call.body) == {
        "query": "rain",
        "max_results": 3,
        "search_depth": "advanced",
        "include_domains": ["yr.no", "met.no"],
        "exclude_domains": ["spam.example"],
    }
    assert json.loads(Tavily().ask(PLAIN, "k").body) == {
        "query": "rain in Oslo", "max_results": 6, "search_depth": "basic",
    }  # fmt: skip
    assert list(Tavily().read({"results": [{**PAGE, "content": "It rains."}]})) == [
        Found("https://yr.no/", "Rain & sun", "It rains.")
    ]


@pytest.mark.parametrize("provider", [Searxng(), Brave(), Tavily()])
@pytest.mark.parametrize(
    "answer",
    [
        None, 3, [], {}, {"results": None, "web": None}, {"results": {}, "web": {"results": 3}}, {"web": []},
        {"results": [None, 3, {}, {"url": 3}, {"url": "ftp://x.example"}, {"url": "https://x.example/a b"}]},
        {"results": [{"url": "https://x.example\\@yr.no/"}]},
        {"web": {"results": [{"url": "javascript:alert(1)"}, {"url": "https://" + "x" * 3000}]}},
    ],
)  # fmt: skip
def test_what_is_no_result_is_left_out(provider, answer):
    assert list(provider.read(answer)) == []


def test_one_domain_needs_no_brackets():
    assert Question(text="rain", count=1, allowed=("yr.no",)).with_operators() == "rain site:yr.no"
