"""Sizes and durations as people write them."""

import re
from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# Anchored and ASCII only: the JSON Schema publishes the same patterns that the parsers use.
SIZE_PATTERN: Final = r"^ *[0-9]{1,19} *(?:[kKmMgG][iI]?[bB]|[bB])? *$"
DURATION_PATTERN: Final = r"^ *[0-9]{1,12}(?:\.[0-9]{1,9})? *(?:ms|s|m|h|d)? *$"

_SIZE_UNITS: Final[Mapping[str, int]] = MappingProxyType(
    {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": KIB, "mib": MIB, "gib": GIB}
)
_DURATION_UNITS: Final[Mapping[str, Fraction]] = MappingProxyType(
    {
        "ms": Fraction(1, 1000),
        "": Fraction(1),
        "s": Fraction(1),
        "m": Fraction(60),
        "h": Fraction(3600),
        "d": Fraction(86_400),
    }
)
_LARGEST_SIZE: Final = 2**63 - 1
# A century: beyond it, adding a timeout to a clock stops being exact and thread waits overflow.
_LONGEST_SECONDS: Final = 100 * 365 * 86_400

_SIZE_HELP = 'write a positive whole number of bytes, or a string with B, KB, MB, GB, KiB, MiB or GiB such as "8MiB"'
_DURATION_HELP = 'write a number of seconds, or a string with ms, s, m, h or d such as "30s"'


def parse_size(value: Any) -> int:
    """Return a size in bytes.

    Args:
        value: a positive int, or a string such as `"8MiB"`; units ignore case.

    Raises:
        ValueError: the value is no size, not positive, fractional or beyond 63 bits.
    """
    size = parse_size_or_zero(value)
    if not size:
        raise ValueError(f"a size must be positive; {_SIZE_HELP}")
    return size


def parse_size_or_zero(value: Any) -> int:
    """Return a size in bytes as `parse_size` does, or 0.

    Raises:
        ValueError: the value is neither.
    """
    if isinstance(value, str) and re.fullmatch(SIZE_PATTERN, value):
        text = value.strip()
        digits = text.rstrip("bBkKmMgGiI ")
        size = int(digits) * _SIZE_UNITS[text[len(digits) :].strip().lower()]
    elif type(value) is int:
        size = value
    else:
        raise ValueError(f"not a size; {_SIZE_HELP}")
    if size < 0:
        raise ValueError(f"a size must be positive; {_SIZE_HELP}")
    if size > _LARGEST_SIZE:
        raise ValueError("too large; sizes end at 8 EiB")
    return size


def parse_duration(value: Any) -> float:
    """Return a duration in seconds.

    Args:
        value: a number of seconds, or a string such as `"250ms"`, `"30s"`, `"5m"`, `"1h"` or `"30d"`.

    Raises:
        ValueError: the value is no duration, negative, not finite or longer than a century.
    """
    if isinstance(value, str) and re.fullmatch(DURATION_PATTERN, value):
        text = value.strip()
        digits = text.rstrip("msdh ")
        seconds = float(Fraction(digits) * _DURATION_UNITS[text[len(digits) :].strip()])
    elif type(value) in {int, float}:
        seconds = value
    else:
        raise ValueError(f"not a duration; {_DURATION_HELP}")
    if not 0 <= seconds <= _LONGEST_SECONDS:
        raise ValueError(f"a duration lies between 0 and 100 years; {_DURATION_HELP}")
    return float(seconds)


def format_size(size: int) -> str:
    """Return the shortest exact spelling that `parse_size` reads back, for example `8MiB`."""
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if size and size % factor == 0:
            return f"{size // factor}{unit}"
    return f"{size}B"


def format_duration(seconds: float) -> str:
    """Return the shortest spelling that `parse_duration` reads back, for example `5m`; exact to a nanosecond."""
    for unit, factor in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        if seconds and seconds % factor == 0:
            return f"{int(seconds // factor)}{unit}"
    milliseconds = Fraction(str(seconds)) * 1000
    if milliseconds and milliseconds.denominator == 1:
        return f"{milliseconds}ms"
    return f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"
