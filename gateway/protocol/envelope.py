"""The form of an error on the wire, the same on every transport: message, type, param, code, and what else it knows."""

from typing import Any

from msgspec import UNSET, Struct, UnsetType

from gateway.protocol.errors import GatewayError


class ErrorObject(Struct, kw_only=True):
    """What went wrong.

    Attributes:
        message: what is wrong and how to mend it.
        type: kind of error.
        param: the request field at fault, or null.
        code: stable string.
        resource: the limit that was passed, by its config key.
        limit: that limit in bytes.
    """

    message: str
    type: str
    param: str | None
    code: str
    resource: str | UnsetType = UNSET
    limit: int | UnsetType = UNSET


class ErrorEnvelope(Struct, kw_only=True):
    """The body of every failure."""

    error: ErrorObject


def build_envelope(error: GatewayError) -> ErrorEnvelope:
    """Return the body that tells of an error."""
    return ErrorEnvelope(error=build_error_object(error))


def build_error_object(error: GatewayError) -> ErrorObject:
    """Return what an envelope says of an error."""
    members: dict[str, Any] = {**_words_of(error), **error.details}
    return ErrorObject(**members)


def _words_of(error: GatewayError) -> dict[str, str | None]:
    # A caller's and an engine's own words may be quoted, and JSON escapes let them hold half a surrogate pair, which
    # UTF-8 cannot.
    words = {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    return {name: word and word.encode("utf-8", "replace").decode() for name, word in words.items()}
