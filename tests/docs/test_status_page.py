"""The tables of the page on the status document follow from the code."""

import re

import pytest
from docs.status_page import CLASSES, PAGE, render

TEXT = PAGE.read_text()


def test_the_page_is_current() -> None:
    assert render(TEXT) == TEXT, "run `make docs-generate`"


def test_every_class_has_a_table_below_its_own_heading() -> None:
    named = re.findall(r"^### (\w+)$.*?<!-- (\w+): generated -->", TEXT, re.MULTILINE | re.DOTALL)
    assert all(heading == table for heading, table in named)
    assert {table for _, table in named} == {kind.__name__ for kind in CLASSES}


def test_a_table_nobody_knows_is_an_error() -> None:
    with pytest.raises(KeyError, match="Nonsense"):
        render("<!-- Nonsense: generated -->\n<!-- end -->")
