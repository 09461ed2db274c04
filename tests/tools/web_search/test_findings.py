import pytest

from gateway.tools.web_search.findings import Findings, interleave
from gateway.tools.web_search.provider import Found


def page(name: str, snippet: str = "Text.") -> Found:
    return Found(f"https://{name}.example/", f"Page {name}", snippet)


def test_sources_are_numbered_and_told():
    told = Findings("medium", 10_000).tell([page("a"), page("b", "")], [])
    assert told.text.startswith(
        "Results:\n\n[1] Page a\nhttps://a.example/\nText.\n\n[2] Page b\nhttps://b.example/\n\n\nPut the number"
    )
    assert "such as [1]" in told.text
    assert [(source.number, source.url, source.title) for source in told.sources] == [
        (1, "https://a.example/", "Page a"), (2, "https://b.example/", "Page b"),
    ]  # fmt: skip
    assert told.results[0] == {"url": "https://a.example/", "title": "Page a", "text": "Text."}


def test_a_page_has_one_number_in_a_response():
    findings = Findings("low", 10_000)
    findings.tell([page("a"), page("b")], [])
    told = findings.tell([page("b"), page("c"), page("b")], [])
    assert [source.number for source in told.sources] == [2, 3]
    assert "such as [2]" in told.text


@pytest.mark.checklist(304)
def test_text_stays_within_its_bytes():
    findings = Findings("high", 5000)
    told = findings.tell([page(str(number), "é" * 900) for number in range(10)], ["A query failed."])
    assert len(told.text.encode()) <= 5000
    assert len(told.sources) == 3
    assert told.results[-1]["text"] < "é" * 900
    assert "A query failed." in told.text


def test_snippets_are_as_long_as_asked():
    assert [len(Findings(depth, 10**6).tell([page("a", "x" * 9000)], []).results[0]["text"]) for depth in (
        "low", "medium", "high",
    )] == [300, 800, 2000]  # fmt: skip


def test_nothing_found_is_told():
    told = Findings("medium", 10_000).tell([], ["A query failed."] * 2)
    assert (told.sources, told.results) == ((), ())
    assert told.text.count("A query failed.") == 1
    assert "found nothing" in told.text


def test_the_best_of_each_query_comes_first():
    a, b, c = page("a"), page("b"), page("c")
    assert interleave([[a, b], [], [c]]) == [a, c, b]
    assert interleave([]) == []
