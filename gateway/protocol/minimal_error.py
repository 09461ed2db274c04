"""The smallest event that tells of a failure, which may always be sent."""

from gateway.protocol import codec
from gateway.protocol.errors import GatewayError, ResourceLimitExceeded
from gateway.protocol.events import ErrorDetail, ErrorEvent
from gateway.protocol.limits import MINIMAL_ERROR_BYTES

# Longest code or type that is repeated, in characters.
_LONGEST_NAME = 40


def minimal_error(error: GatewayError, sequence_number: int) -> ErrorEvent:
    """Return an `error` event of at most 320 bytes, with the fields flat and nested."""
    code = error.code if _is_plain(error.code, _LONGEST_NAME) else type(error).code
    kind = error.type if _is_plain(error.type, _LONGEST_NAME) else type(error).type
    message = error.message
    if isinstance(error, ResourceLimitExceeded):
        message = f"Exceeds {error.resource} ({error.limit} bytes)."
    message = message.replace('"', "'").replace("\\", "/")
    if not _is_plain(message, len(message)):
        message = "The response failed."
    detail = ErrorDetail(type=kind, code=code, message="")
    event = ErrorEvent(sequence_number=sequence_number, code=code, message="", error=detail)
    # The message is there twice.
    room = (MINIMAL_ERROR_BYTES - len(codec.encode(event))) // 2
    event.message = detail.message = message[: max(0, room)]
    return event


def _is_plain(text: str, longest: int) -> bool:
    """Whether a text takes one byte a character in JSON."""
    return 0 < len(text) <= longest and text.isascii() and text.isprintable() and not set('"\\') & set(text)
