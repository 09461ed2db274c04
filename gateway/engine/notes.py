"""Notes on their way to clients and back: sealed in compaction items, which only the gateway can read."""

from collections.abc import Sequence
from typing import Any

from gateway.ports import Sealer, SealMismatch
from gateway.protocol.compaction import COMPACTION, read_note, write_note
from gateway.protocol.errors import InvalidRequest

_KIND = "compaction"


class Notes:
    """Writes and reads the `encrypted_content` of compaction items.

    Args:
        sealer: seals them; None where there are no keys, and so no notes.
    """

    def __init__(self, sealer: Sealer | None) -> None:
        self._sealer = sealer

    def write(self, principal: str, note: str) -> str:
        """Return a note as its owner carries it.

        Raises:
            Unavailable: the keys cannot be had.
        """
        assert self._sealer is not None, "without keys nothing is compacted"
        return self._sealer.seal(principal, _KIND, write_note(note))

    def read(self, principal: str, items: Sequence[dict[str, Any]], *, first_new: int) -> dict[int, str]:
        """Return what the notes among the items say, by their position; those of somebody else's making say nothing.

        Args:
            principal: who brings them.
            items: the effective input, oldest first.
            first_new: where the input of the request at hand begins.

        Raises:
            InvalidRequest: a note belongs to another principal, or to another version of the gateway.
            Unavailable: the keys cannot be had.
        """
        found: dict[int, str] = {}
        for position, item in enumerate(items):
            if self._sealer is None or item["type"] != COMPACTION:
                continue
            path = (
                f"input[{position - first_new}].encrypted_content" if position >= first_new else "previous_response_id"
            )
            try:
                opened = self._sealer.unseal(principal, _KIND, item["encrypted_content"])
            except SealMismatch:
                raise _refuse(path, "was not made for you") from None
            if opened is None:
                continue
            if (note := read_note(opened)) is None:
                raise _refuse(path, "was made by another version of the gateway")
            found[position] = note
        return found


def _refuse(path: str, why: str) -> InvalidRequest:
    return InvalidRequest(f"The compaction item in '{path}' {why}.", code="invalid_encrypted_content", param=path)
