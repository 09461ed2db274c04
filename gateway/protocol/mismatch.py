"""What is wrong with a body, in the words of JSON and by the name of the parameter."""

import re
from typing import Any, TypeVar

import msgspec

from gateway.protocol import codec
from gateway.protocol.errors import InvalidRequest

T = TypeVar("T")

_MISMATCH = re.compile(
    r"Expected `(?P<expected>.*?)(?: \| null)?`(?:, got `(?P<got>.*?)`)?(?P<rest>.*?)(?: - at `(?P<path>.*)`)?\Z",
    re.DOTALL,
)
_JSON_NAMES = {
    "str": "a string", "int": "an integer", "float": "a number", "bool": "a boolean", "array": "an array",
    "object": "an object", "null": "null",
}  # fmt: skip


def read_fields(raw: dict[str, Any], kind: type[T]) -> T:
    """Return a decoded object as a Struct.

    Raises:
        InvalidRequest: names the parameter at fault.
    """
    try:
        fields: T = codec.convert(raw, kind)
    except msgspec.ValidationError as error:
        raise _explain(error) from None
    return fields


def _explain(error: msgspec.ValidationError) -> InvalidRequest:
    """Return msgspec's complaint in the words of JSON, with the parameter it is about."""
    found = _MISMATCH.match(str(error))
    if found is None:
        what, _, path = str(error).partition(" - at `")
        param = _param_of(path.rstrip("`"))
        return InvalidRequest(f"Invalid value for '{param}': {what[:128]}.", code="invalid_value", param=param)
    param = _param_of(found["path"] or "")
    expected = " or ".join(_JSON_NAMES.get(kind, kind) for kind in found["expected"].split(" | "))
    if found["got"] is not None:
        got = _JSON_NAMES.get(found["got"], found["got"])
        return InvalidRequest(
            f"Invalid type for '{param}': expected {expected}, got {got}.", code="invalid_type", param=param
        )
    return InvalidRequest(
        f"Invalid value for '{param}': expected {expected}{found['rest']}.", code="invalid_value", param=param
    )


def _param_of(path: str) -> str | None:
    """Return the parameter a msgspec path points at; what lies inside a map or list is not named by it."""
    return path.rpartition("$.")[2].replace("[...]", "") or None
