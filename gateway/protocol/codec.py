"""The only place where objects become bytes and bytes become objects.

msgspec does the work. Lone surrogates, legal in JSON as escapes and refused by msgspec, take the standard library's
way in both directions, so that nothing a caller or an engine wrote is lost. How deep a text may be nested is decided
here, on its bytes, so that nothing behind this module can run out of stack.
"""

import json
import re
from itertools import accumulate
from math import isfinite
from typing import Any, NoReturn

import msgspec

MAX_DEPTH = 256
"""Deepest nesting of what an engine sends, in arrays and objects."""

_encode = msgspec.json.Encoder().encode
_DECODER = msgspec.json.Decoder()
# A text is taken up to its quote or, unfinished, to its end: it is never looked at twice.
_TEXTS = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}
_OTHER_BYTES = bytes(byte for byte in range(256) if byte not in _STEPS)


class TooDeepError(ValueError):
    """A JSON text is nested deeper than allowed."""

    def __init__(self, max_depth: int) -> None:
        super().__init__(f"nested deeper than {max_depth} levels")


def encode(value: Any) -> bytes:
    """Return compact JSON; text that UTF-8 cannot carry is escaped."""
    try:
        return _encode(value)
    except (UnicodeEncodeError, OverflowError):
        return json.dumps(msgspec.to_builtins(value), separators=(",", ":")).encode("ascii")


encode_ascii = _encode
"""Return an ASCII text as JSON: what is no text, or may hold a surrogate, is for `encode`."""


def decode(data: bytes, *, max_depth: int | None = MAX_DEPTH) -> Any:
    """Return the value of a JSON text in UTF-8.

    Args:
        data: the text.
        max_depth: deepest nesting; None for what was bounded before it was stored.

    Raises:
        TooDeepError: a ValueError; the text is nested deeper.
        ValueError: the text is not JSON, or holds NaN or Infinity.
    """
    if max_depth is not None:
        check_depth(data, max_depth)
    try:
        return _DECODER.decode(data)
    except msgspec.DecodeError as error:
        try:
            text = data.decode("utf-8-sig", "surrogatepass")
            return json.loads(text, parse_constant=_refuse, parse_float=_read_finite)
        except ValueError:
            raise ValueError(str(error)) from error


def replace_member(data: bytes, name: str, value: Any) -> bytes:
    """Return a JSON object with one member replaced; the values of the others keep every byte.

    Args:
        data: a text that `decode` has found to be an object.
        name: the member.
        value: its new value.
    """
    try:
        members: dict[str, Any] = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    except msgspec.DecodeError:
        members = decode(data)
    return encode({**members, name: value})


def check_depth(data: bytes, max_depth: int = MAX_DEPTH) -> None:
    """Check the nesting of a JSON text before anything reads it.

    Raises:
        TooDeepError: it is nested deeper.
    """
    # Counting is far cheaper than following, and most texts hold too few brackets to be deep. To take brackets out is
    # the fastest way to count a few.
    few = max_depth + 1
    if 2 * len(data) - len(data.replace(b"[", b"", few)) - len(data.replace(b"{", b"", few)) > max_depth:
        brackets = _TEXTS.sub(b"", data).translate(None, _OTHER_BYTES)
        if max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > max_depth:
            raise TooDeepError(max_depth)


def convert(value: Any, kind: Any) -> Any:
    """Return a decoded value as the given type, checked.

    Raises:
        msgspec.ValidationError: it does not fit; the message ends with the path.
    """
    try:
        return msgspec.convert(value, kind)
    except UnicodeEncodeError:
        # msgspec cannot look at half a surrogate pair in a name, which then is no field's, or where a number or one
        # of several words is due, which then is wrong. Where any text may stand it passes.
        named = {name: one for name, one in value.items() if _is_text(name)}
    try:
        return msgspec.convert(named, kind)
    except UnicodeEncodeError:
        shown = {name: one if _is_text(one) else "\ufffd" for name, one in named.items()}
        return msgspec.convert(shown, kind)


def _is_text(value: Any) -> bool:
    """Whether a value is none that UTF-8 cannot carry."""
    try:
        return not isinstance(value, str) or value.encode() is not None
    except UnicodeEncodeError:
        return False


def _refuse(number: str) -> NoReturn:
    raise ValueError(f"{number} is not a JSON number")


def _read_finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _refuse(digits)
