import pytest

from gateway.telemetry.quantities import (
    make_printable,
    show_bytes,
    show_count,
    show_seconds,
    show_share,
    show_span,
    show_time,
)


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (25.5, "26 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1234, "1.21 KiB"),
        (1_048_575, "1 MiB"),
        (150 * 1024**2, "150 MiB"),
        (3 * 1024**5, "3072 TiB"),
    ],
)
def test_sizes(size, shown):
    assert show_bytes(size) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0 ms"),
        (0.0000854, "85.4 µs"),
        (0.00099999, "1 ms"),
        (0.0351, "35.1 ms"),
        (0.73, "730 ms"),
        (0.99999, "1 s"),
        (1.25, "1.25 s"),
        (640, "640 s"),
    ],
)
def test_short_times(seconds, shown):
    assert show_seconds(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-1, "0 s"), (0.4, "0 s"), (59.9, "59 s"), (61, "1 min 1 s"), (7200, "2 h 0 min"), (277_200, "3 d 5 h")],
)
def test_long_times(seconds, shown):
    assert show_span(seconds) == shown


@pytest.mark.parametrize(
    ("part", "whole", "shown"),
    [
        (0, 5, "0 %"),
        (1, 0, "\N{EN DASH}"),
        (1, 100_000, "<0.1 %"),
        (1, 300, "0.3 %"),
        (99, 1000, "9.9 %"),
        (999, 1000, "100 %"),
    ],
)
def test_shares(part, whole, shown):
    assert show_share(part, whole) == shown


def test_counts_and_moments():
    assert show_count(1_234_567) == "1\N{NARROW NO-BREAK SPACE}234\N{NARROW NO-BREAK SPACE}567"
    assert show_time(1_800_000_000.9) == "2027-01-15 08:00:00"


def test_what_others_say_cannot_steer_a_terminal():
    assert make_printable("a\x1b[2J\r\nb\u202e\x9b") == "a [2J  b  "
