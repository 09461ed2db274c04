import pytest

from gateway.protocol.citations import Source, Sources

FIRST = Source(1, "https://one.example/page", "One")
SECOND = Source(2, "https://two.example/a_(b)/", "Two")


def cite(text: str) -> list[tuple[str, str]]:
    sources = Sources()
    sources.add([FIRST, SECOND])
    return [
        (text[found["start_index"] : found["end_index"]], found["title"])
        for found in sources.cite(text)
        if found["type"] == "url_citation" and found["url"] in (FIRST.url, SECOND.url)
    ]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("It rains [1].", [("[1]", "One")]),
        ("Both say so [1][2].", [("[1]", "One"), ("[2]", "Two")]),
        ("Both say so [2, 1].", [("[2, 1]", "Two"), ("[2, 1]", "One")]),
        ("Once [1, 1, 7].", [("[1, 1, 7]", "One")]),
        ("See [the page](https://one.example/page).", [("[the page](https://one.example/page)", "One")]),
        ("See [b](https://two.example/a_(b)/)", [("[b](https://two.example/a_(b)/)", "Two")]),
        ("See https://one.example/page.", [("https://one.example/page", "One")]),
        ("(see https://one.example/page/)", [("https://one.example/page/", "One")]),
        ("(see https://two.example/a_(b)),", [("https://two.example/a_(b)", "Two")]),
        ("[1]: https://one.example/page", [("[1]", "One"), ("https://one.example/page", "One")]),
        ("naïve 👩‍👩‍👧 [1]", [("[1]", "One")]),
        ("No source [3] or [0] https://three.example [text](https://four.example)", []),
        ("Nothing at all, 1]", []),
        ("`a[1]` and\n```\nb[2] https://one.example/page\n``` then [1]", [("[1]", "One")]),
        ("```\nb[2]", []),
    ],
)
def test_marks_are_found(text, found):
    assert cite(text) == found


def test_indexes_count_code_points():
    sources = Sources()
    sources.add([FIRST])
    assert sources.cite("𝄞é [1]") == [
        {"type": "url_citation", "start_index": 3, "end_index": 6, "url": FIRST.url, "title": "One"}
    ]


def test_without_sources_nothing_is_cited():
    assert Sources().cite("[1] https://one.example/page") == []


@pytest.mark.timeout(5)
@pytest.mark.parametrize("piece", ["[", "`", "```", "[1", "[1,", "https://", "[a](https://x", "(", "](http://a(", ")"])
def test_hostile_texts_take_no_long_time(piece):
    assert cite(f"https://x{piece * 100_000}") == []
    assert cite(piece * 100_000) == []
