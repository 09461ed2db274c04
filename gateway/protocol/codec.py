"""The only place where objects become bytes and bytes become objects.

msgspec does the work. Lone surrogates, legal in JSON as escapes and refused by msgspec, take the standard library's
way in both directions, so that nothing a caller or an engine wrote is lost.
"""

import json
from typing import Any

import msgspec

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder()


def encode(value: Any) -> bytes:
    """Return compact JSON; text that UTF-8 cannot carry is escaped."""
    try:
        return _ENCODER.encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":"), default=_raw).encode("ascii")


def decode(data: bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is not JSON, holds NaN or Infinity, or is nested too deeply to read.
    """
    try:
        return _DECODER.decode(data)
    except msgspec.DecodeError as error:
        try:
            return json.loads(data, parse_constant=_refuse)
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


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _raw(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        return decode(bytes(value))
    raise TypeError(f"{type(value).__name__} is not JSON")
