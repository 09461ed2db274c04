"""Numbers as people read them."""

from datetime import UTC, datetime
from typing import Final

_BYTE_UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
_SPANS: Final = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
NOTHING: Final = "\N{EN DASH}"
"""What stands where there is no value."""


def show_count(number: float) -> str:
    """Return a whole number with its thousands set apart: `12 345`."""
    return f"{round(number):,}".replace(",", "\N{NARROW NO-BREAK SPACE}")


def show_bytes(size: float) -> str:
    """Return a size in the largest unit of which there is one: `1.2 MiB`."""
    unit = 0
    while size >= 1023.95 and unit < len(_BYTE_UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{_shorten(size) if unit else round(size)} {_BYTE_UNITS[unit]}"


def show_seconds(seconds: float) -> str:
    """Return a short time with three digits that count: `1.25 s`, `730 ms`, `85 µs`."""
    if seconds >= 0.9995:
        return f"{_shorten(seconds)} s"
    if seconds >= 0.0009995 or not seconds:
        return f"{_shorten(seconds * 1000)} ms"
    return f"{_shorten(seconds * 1_000_000)} µs"


def show_span(seconds: float) -> str:
    """Return a long time in its two largest units: `3 d 4 h`, `12 s`."""
    left = int(max(0.0, seconds))
    words: list[str] = []
    for size, unit in _SPANS:
        amount, left = divmod(left, size)
        if amount or words:
            words.append(f"{amount} {unit}")
    return " ".join(words[:2]) or "0 s"


def show_time(moment: float) -> str:
    """Return Unix seconds as date and time of day, in UTC."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d %H:%M:%S")


def show_share(part: float, whole: float) -> str:
    """Return a part of a whole in percent; of nothing, nothing."""
    if not whole:
        return NOTHING
    percent = 100 * part / whole
    if 0 < percent < 0.1:
        return "<0.1 %"
    return f"{percent:.0f} %" if percent >= 9.95 or not percent else f"{percent:.1f} %"


def make_printable(text: str) -> str:
    """Return a text of others without what could move a cursor or change a terminal: each such character is a space."""
    return "".join(character if character.isprintable() else " " for character in text)


def _shorten(number: float) -> str:
    """Return three digits that count, or all before the point."""
    if number >= 99.95:
        return f"{number:.0f}"
    return f"{number:.3g}"
