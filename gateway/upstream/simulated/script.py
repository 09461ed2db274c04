"""Replies written down in a file, for faults that no simulated model has."""

from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct


class ScriptedReply(Struct, frozen=True, forbid_unknown_fields=True):
    """One reply, used once.

    Attributes:
        match: only for a request whose body contains this text.
        status: HTTP status.
        headers: response headers beside the content type.
        json: body of a JSON reply.
        sse: pairs of seconds to wait and text to send, of a streamed reply.
        cut: the connection is cut at the end.
    """

    match: str = ""
    status: int = 200
    headers: dict[str, str] = {}
    json: Any = None
    sse: list[tuple[float, str]] | None = None
    cut: bool = False


def load_script(path: Path) -> list[ScriptedReply]:
    """Return the replies in a JSON file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not a JSON list of replies; the message names the place.
    """
    return msgspec.json.decode(path.read_bytes(), type=list[ScriptedReply])


def take_reply(replies: list[ScriptedReply], body: bytes) -> ScriptedReply | None:
    """Remove and return the first reply that fits this request body, or None."""
    for number, reply in enumerate(replies):
        if reply.match.encode() in body:
            return replies.pop(number)
    return None
