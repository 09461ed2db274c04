import pytest

from gateway.protocol.errors import InvalidRequest
from gateway.tools.web_search.declaration import is_web_search, read_declaration


@pytest.mark.parametrize(
    "kind",
    [
        "web_search", "web_search_preview", "web_search_2025_08_26", "web_search_preview_2025_03_11",
        "web_search_2031_01_01",
    ],
)  # fmt: skip
def test_types_are_known(kind):
    assert is_web_search(kind)


@pytest.mark.parametrize(
    "kind", ["web_search_call", "web_search_2025", "web_search_2025_08_26_x", "file_search", "web"]
)
def test_other_types_are_not(kind):
    assert not is_web_search(kind)


def test_all_members_are_read():
    place = {"type": "approximate", "country": "no", "city": "Oslo", "region": None, "timezone": "Europe/Oslo"}
    declared = read_declaration(
        {
            "type": "web_search",
            "filters": {"allowed_domains": ["Yr.no", "yr.no"], "blocked_domains": ["spam.example"]},
            "user_location": place,
            "search_context_size": "high",
            "external_web_access": False,
            "something_new": [1],
        },
        "tools[0]",
    )
    assert (declared.depth, declared.allowed, declared.blocked) == ("high", ("yr.no",), ("spam.example",))
    assert declared.place == {"city": "Oslo", "country": "no", "timezone": "Europe/Oslo"}


def test_nothing_is_needed():
    declared = read_declaration({"type": "web_search", "filters": None, "user_location": None}, "tools[0]")
    assert (declared.depth, declared.allowed, declared.place) == ("medium", (), {})
    assert declared.permits("https://anything.example")


def test_domains_hold_their_subdomains():
    declared = read_declaration(
        {"filters": {"allowed_domains": ["yr.no"], "blocked_domains": ["ads.yr.no"]}}, "tools[0]"
    )
    permitted = ["https://yr.no/x", "https://www.YR.no:443"]
    refused = ["https://notyr.no", "https://yr.no.evil.example", "https://ads.yr.no", "https://x.ads.yr.no", "http://["]
    refused += ["https://ads.yr.no./x"]
    assert [url for url in [*permitted, *refused] if declared.permits(url)] == permitted


@pytest.mark.checklist(301)
@pytest.mark.parametrize(
    ("members", "param", "message"),
    [
        ({"search_context_size": "huge"}, "search_context_size", "low, medium or high"),
        ({"search_context_size": []}, "search_context_size", "low, medium or high"),
        ({"external_web_access": "yes"}, "external_web_access", "true or false"),
        ({"filters": []}, "filters", "an object"),
        ({"filters": {"allowed_domains": "yr.no"}}, "filters.allowed_domains", "a list of domains"),
        ({"filters": {"allowed_domains": ["a.no", 3]}}, "filters.allowed_domains[1]", "a string"),
        ({"filters": {"blocked_domains": ["https://yr.no"]}}, "filters.blocked_domains[0]", "a bare domain"),
        ({"filters": {"blocked_domains": [""]}}, "filters.blocked_domains[0]", "a bare domain"),
        ({"filters": {"allowed_domains": ["a.no OR b"]}}, "filters.allowed_domains[0]", "a bare domain"),
        ({"filters": {"allowed_domains": ["a" * 300]}}, "filters.allowed_domains[0]", "a bare domain"),
        ({"filters": {"allowed_domains": ["a.no"] * 101}}, "filters.allowed_domains", "more than 100"),
        ({"user_location": "Oslo"}, "user_location", "an object"),
        ({"user_location": {"type": "exact"}}, "user_location.type", "approximate"),
        ({"user_location": {"city": 3}}, "user_location.city", "a string"),
        ({"user_location": {"city": "x" * 201}}, "user_location.city", "at most 200"),
        ({"user_location": {"city": "x\ny"}}, "user_location.city", "one line"),
    ],
)
def test_what_is_wrong_is_named(members, param, message):
    with pytest.raises(InvalidRequest, match=message) as refused:
        read_declaration({"type": "web_search", **members}, "tools[2]")
    assert refused.value.param == f"tools[2].{param}"
