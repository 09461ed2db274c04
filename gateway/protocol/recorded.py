"""Events as they are recorded for whoever reads them later: the JSON of each, one a line."""

from collections.abc import Iterator
from typing import Final

from msgspec import Raw

from gateway.protocol import codec, events

TERMINALS: Final = frozenset({b"response.completed", b"response.incomplete", b"response.failed", b"error"})
"""What a response ends with."""

_WITHOUT_OUTPUT = frozenset({b"response.created", b"response.queued", b"response.in_progress"})
_OF_STATUS: dict[str, type[events.ResponseEvent]] = {
    "completed": events.ResponseCompleted,
    "incomplete": events.ResponseIncomplete,
    "failed": events.ResponseFailed,
    # There is no event of its own for it.
    "cancelled": events.ResponseIncomplete,
}
# Every event begins with its type.
_TYPE = b'{"type":"'


def join(batch: list[bytes]) -> bytes:
    """Return events as they are recorded."""
    return b"\n".join(batch)


def split(data: bytes, skip: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield the type and the JSON of each recorded event but the first `skip`."""
    for event in data.split(b"\n")[max(0, skip) :]:
        yield event[len(_TYPE) : event.index(b'"', len(_TYPE))], event


def tells_output(name: bytes) -> bool:
    """Tell whether an event of this type says more than that the response is under way."""
    return name not in _WITHOUT_OUTPUT


def encode_terminal(status: str, number: int, response: bytes) -> bytes:
    """Return the last event of a response, as JSON.

    Args:
        status: how it ended.
        number: the event's sequence number.
        response: the response, as JSON.
    """
    return codec.encode(_OF_STATUS[status](sequence_number=number, response=Raw(response)))
