"""What the charts draw, read as the XML it is."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st
from telemetry.status_samples import DISTRIBUTIONS, USES

from gateway.telemetry.distribution import distribute
from gateway.telemetry.status import Use
from gateway.transport.charts import draw_buckets, draw_level


def bars(svg, kind):
    return [bar for bar in ET.fromstring(svg) if bar.get("class") == kind]


def width(svg, kind):
    return [float(bar.get("width")) for bar in bars(svg, kind)]


def titles(svg, kind):
    return [bar.findtext("title") for bar in bars(svg, kind)]


def within(svg):
    root = ET.fromstring(svg)
    _, _, wide, tall = map(float, root.get("viewBox").split())
    for bar in root:
        x, y, w, h = (float(bar.get(name)) for name in ("x", "y", "width", "height"))
        assert 0 <= x <= x + w <= wide + 0.01
        assert 0 <= y <= y + h <= tall + 0.01
    return True


@given(USES)
def test_a_bar_stays_within_its_track(use):
    assert within(draw_level(use, "a"))


@given(DISTRIBUTIONS.filter(lambda seen: seen.count), st.none() | st.integers(1, 10**6))
def test_columns_stay_within_their_chart_and_none_is_left_out(seen, limit):
    svg = draw_buckets(seen, limit, str)
    assert within(svg)
    assert len(bars(svg, "fill")) + len(bars(svg, "over")) == sum(bool(held) for held in seen.counts)
    assert len(bars(svg, "mark")) == (limit is not None)


def test_a_level_is_drawn_against_its_limit_with_a_mark_at_the_most():
    svg = draw_level(Use(now=25, high=50, limit=100), "calls & more")
    assert (width(svg, "fill"), [bar.get("x") for bar in bars(svg, "mark")]) == ([25.0], ["50.00"])
    assert ET.fromstring(svg).get("aria-label") == "calls & more"


def test_almost_full_is_another_colour():
    assert width(draw_level(Use(now=90, high=90, limit=100), ""), "over") == [90.0]


@pytest.mark.parametrize(
    ("use", "wide"), [(Use(now=3, high=4), 75.0), (Use(now=4, high=4), 100.0), (Use(now=0, high=0), 0)]
)
def test_without_a_limit_the_most_there_was_is_the_whole(use, wide):
    svg = draw_level(use, "")
    assert (width(svg, "fill"), bars(svg, "over"), bars(svg, "mark")) == ([wide], [], [])


def test_columns_say_what_they_count_and_those_beyond_the_limit_are_of_another_colour():
    svg = draw_buckets(distribute((10.0, 100.0), (4, 0, 1), 500.0, 300.0), 100, lambda value: f"{value:g}")
    assert titles(svg, "fill") == ["2.5 to 10: 4"]
    assert titles(svg, "over") == ["100 to 400: 1"]
    assert titles(svg, "mark") == ["limit 100"]
    assert float(bars(svg, "fill")[0].get("height")) > float(bars(svg, "over")[0].get("height")) > 0
