"""The only place where objects become bytes and bytes become objects.

msgspec does the work. Lone surrogates, legal in JSON as escapes and refused by msgspec, take the standard library's
way in both directions, so that nothing a caller or an engine wrote is lost.
"""

import json
from math import isfinite
from typing import Any, NoReturn

import msgspec

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder()


def encode(value: Any) -> bytes:
    """Return compact JSON; text that UTF-8 cannot carry is escaped."""
    try:
        return _ENCODER.encode(value)
    except (UnicodeEncodeError, OverflowError):
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode("ascii")


def decode(data: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is not JSON, holds NaN or Infinity, or is nested too deeply to read.
    """
    try:
        return _DECODER.decode(data)
    except msgspec.DecodeError as error:
        try:
            return json.loads(data, parse_constant=_refuse, parse_float=_read_finite)
        except (ValueError, RecursionError):
            raise ValueError(str(error)) from error
    except RecursionError as error:
        raise ValueError("JSON is nested too deeply") from error


def convert(value: Any, kind: Any) -> Any:
    """Return a decoded value as the given type, checked.

    Raises:
        msgspec.ValidationError: it does not fit; the message ends with the path.
    """
    return msgspec.convert(value, kind)


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"{number} is not a JSON number")


def _read_finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _refuse(digits)
