"""The page of excluded faults tells which tests there are, and there is one for each."""

from collections import Counter

import pytest
from conformance.agent_rows import AGENT_SECTIONS
from conformance.conformance_page import PAGE, SECTIONS, Found, find_all, find_marked, find_unshown, render

ROWS = [row for rows in SECTIONS.values() for row in rows]
AGENT_ROWS = [row for rows in AGENT_SECTIONS.values() for row in rows]
SOURCE = """
import pytest

@pytest.mark.checklist(1, 2)
@pytest.mark.slow
@pytest.mark.checklist(3)
def test_one(): ...

class TestTwo:
    @pytest.mark.checklist(4)
    @pytest.mark.agents(5, 6)
    async def test_inside(self): ...

@pytest.mark.slow
def test_unmarked(): ...
"""


def test_rows_are_numbered_apart_and_those_of_a_section_through() -> None:
    assert len(set(ROWS)) == len(ROWS)
    for rows in SECTIONS.values():
        numbers = list(rows)
        assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def test_every_row_has_a_test_and_every_marker_a_row() -> None:
    covered = Counter(row for found in find_all() for row in found.rows)
    assert set(ROWS) - set(covered) == set()
    assert set(covered) - set(ROWS) == set()


def test_rows_of_several_agents_are_numbered_through_and_each_has_a_test() -> None:
    assert list(range(1, len(AGENT_ROWS) + 1)) == AGENT_ROWS
    assert {row for found in find_all() for row in found.agents} == set(AGENT_ROWS)


def test_a_row_of_several_agents_without_a_test_is_seen() -> None:
    found = [Found("a/test_a.py", "test_1", (), tuple(AGENT_ROWS[:-1]))]
    assert find_unshown(found) == [140]
    page = render(found)
    assert "no test shows yet: 140.\n" in page
    assert page.count("**not shown yet**") == 1
    assert "not shown" not in render([Found("a/test_a.py", "test_1", (), tuple(AGENT_ROWS))])


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == render(find_all()), "run `python -m conformance.conformance_page` in tests/"


def test_marked_tests_are_found() -> None:
    found = list(find_marked(SOURCE, "test_x.py"))
    assert [(test.name, sorted(test.rows), test.agents) for test in found] == [
        ("test_one", [1, 2, 3], ()),
        ("TestTwo::test_inside", [4], (5, 6)),
    ]


def test_rows_must_be_written_out() -> None:
    with pytest.raises(ValueError, match="malformed"):
        list(find_marked("@pytest.mark.checklist(*ROWS)\ndef test_one(): ...", "test_x.py"))


def test_a_row_without_tests_shows_as_empty_and_files_are_named_once() -> None:
    page = render([Found("a/test_a.py", "test_1", (1,)), Found("a/test_a.py", "test_2", (1, 2))])
    assert "| [a/test_a.py](../../tests/a/test_a.py): `test_1`, `test_2` |" in page
    third = next(line for line in page.splitlines() if line.startswith("| 3 |"))
    assert third.endswith("|  |")
