"""The tables of the WebSocket page follow from the code."""

import json
import re

import pytest
from docs.pages import find_fences
from docs.websocket_page import PAGE, render

from gateway.protocol.frames import read_frame
from gateway.transport.openapi.failures import EVERY

TEXT = PAGE.read_text()


def test_the_page_is_current() -> None:
    assert render(TEXT) == TEXT, "run `make docs-generate`"


def test_all_tables_are_on_the_page() -> None:
    assert re.findall(r"<!-- (\w+): generated -->", TEXT) == ["limits", "refusals", "failures", "metrics"]
    assert len(re.findall(r"^\| \[`websocket\.\w+`\]", TEXT, re.MULTILINE)) > 20


def test_a_table_nobody_knows_is_an_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        render("<!-- nonsense: generated -->\n<!-- end -->")


def test_no_error_of_a_create_is_told_twice() -> None:
    rows = re.findall(r"^\| `(\w+)` \| \d{3} \|", TEXT, re.MULTILINE)
    assert len(rows) == len(set(rows))
    assert set(rows) <= {failure.code for failure in EVERY}


def test_the_frames_it_shows_are_read() -> None:
    frames = [line for fence in find_fences("json", pages=[PAGE]) for line in fence.text.splitlines()]
    creates = [frame for frame in frames if json.loads(frame)["type"] == "response.create"]
    assert len(creates) >= 2
    assert all(read_frame(frame, max_depth=100) is not None for frame in creates)
