"""What the page on agents says of actions and phases follows from the code."""

import re

from docs.agents_page import PAGE, render

from gateway.protocol.agents.agent import Phase

TEXT = PAGE.read_text()


def test_the_page_is_current() -> None:
    assert render(TEXT) == TEXT, "run `make docs-generate`"


def test_all_tables_are_on_the_page() -> None:
    assert re.findall(r"<!-- (\w+): generated -->", TEXT) == ["actions", "refusals", "phases"]


def test_every_phase_is_explained() -> None:
    assert set(re.findall(r"^\| `(\w+)` \| ", TEXT, re.MULTILINE)) >= {phase.value for phase in Phase}
