"""Sizes and durations: every spelling, every refusal, and the way back."""

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.units import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
    parse_size_or_zero,
)

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@given(number=st.integers(1, 10**6), unit=st.sampled_from(sorted(UNITS)), space=st.sampled_from(["", " "]))
def test_a_size_string_is_its_number_times_its_unit(number, unit, space):
    expected = number * UNITS[unit]
    assert parse_size(f"{number}{space}{unit}") == expected
    assert parse_size(f"{number}{unit.lower()}") == expected


@given(st.integers(0, 2**63 - 1))
def test_a_size_that_may_be_zero_survives_formatting(size):
    assert parse_size_or_zero(format_size(size)) == size == parse_size_or_zero(size) == parse_size_or_zero(str(size))


@given(st.integers(1, 2**63 - 1))
def test_sizes_survive_formatting(size):
    assert parse_size(format_size(size)) == size == parse_size(size) == parse_size(str(size))


@pytest.mark.parametrize(
    "value",
    [
        *[0, -1, "0", "0MiB", "-1MiB", 1.0, 1.5, "1.5MiB", True, False, None, [], {}, "", " ", "MiB", "8 meg", "8M"],
        *["8k", "8MiBs", "8 Mi B", "1e3", "0x10", "8_000", "٨MiB", "8MiB\n", 2**63, "9223372036854775808", "9" * 30],
        *["9999999999GiB", float("nan"), float("inf")],
    ],
)
def test_what_is_no_size_is_refused(value):
    with pytest.raises(ValueError, match="size"):
        parse_size(value)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("250ms", 0.25), ("30s", 30.0), ("5m", 300.0), ("1h", 3600.0), ("30d", 2_592_000.0), ("1.5 s", 1.5), ("7", 7.0)],
)
def test_a_duration_string_is_in_seconds(text, seconds):
    assert parse_duration(text) == seconds


@given(st.one_of(st.integers(0, 10**9), st.floats(0, 3e9)))
def test_numbers_are_seconds(seconds):
    parsed = parse_duration(seconds)
    assert parsed == seconds
    assert type(parsed) is float


@given(st.integers(0, 10**15))
def test_durations_survive_formatting(microseconds):
    seconds = microseconds / 10**6
    assert math.isclose(parse_duration(format_duration(seconds)), seconds, rel_tol=1e-15, abs_tol=1e-9)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0s"), (0.25, "250ms"), (90.0, "90s"), (300.0, "5m"), (2_592_000.0, "30d"), (1e-4, "0.0001s")],
)
def test_durations_are_written_in_their_largest_unit(seconds, text):
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    "value",
    [
        True,
        None,
        [],
        "",
        "s",
        "-1s",
        -1,
        -0.5,
        "30 sec",
        "1w",
        "5M",
        "1h30m",
        "1e3",
        float("nan"),
        float("inf"),
        "101y",
        4e9,
    ],
)
def test_what_is_no_duration_is_refused(value):
    with pytest.raises(ValueError, match="duration"):
        parse_duration(value)


@given(st.text(alphabet="0123456789 .KkMmGgIiBbsdh", max_size=10))
def test_parsers_refuse_whatever_the_published_patterns_refuse(text):
    for pattern, parse in ((SIZE_PATTERN, parse_size), (DURATION_PATTERN, parse_duration)):
        if not re.fullmatch(pattern, text):
            with pytest.raises(ValueError, match="not a"):
                parse(text)
