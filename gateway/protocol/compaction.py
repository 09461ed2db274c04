"""Windows: what a model is shown of a conversation of which a part has been replaced by a note.

Everything here follows from the order of the items alone, so a conversation that is replayed, by whomever, gives the
window with which it went on.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct

from gateway.protocol import codec
from gateway.protocol.compaction_prompt import PREAMBLE
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.items import CLIENT_CALLS, CLIENT_OUTPUTS
from gateway.protocol.ledger import text_bytes

COMPACTION = "compaction"
TRIGGER = "compaction_trigger"

Item = dict[str, Any]

_BYTES_PER_TOKEN = 4
_TOKENS_PER_ITEM = 4
_TOKENS_PER_IMAGE = 1024
# They tell the gateway something, and the model nothing.
_UNSEEN = frozenset({"type", "id", "status", "call_id", "logprobs", "annotations"})
# Who wrote these may not want to have them put in other words.
_KEPT_ROLES = frozenset({"user", "system", "developer"})
_VERSION = 1


class Window(Struct, frozen=True, kw_only=True):
    """What a model is shown, oldest first.

    Attributes:
        kept: messages from before the note that stay word for word.
        note: what the model has put down of everything else before it; None while nothing was replaced.
        tail: what came after the note, and calls from before it that still wait for their outputs.
    """

    kept: Sequence[Item] = ()
    note: str | None = None
    tail: Sequence[Item] = ()

    @property
    def is_compactable(self) -> bool:
        """Whether there is anything that no note tells of yet."""
        return find_protected(self.tail) > 0

    def extend(self, items: Iterable[Item]) -> "Window":
        """Return the window with further items behind it."""
        return Window(kept=self.kept, note=self.note, tail=[*self.tail, *items])

    def follow(self, items: Sequence[Item]) -> "Window":
        """Return the window that is shown as these items: what `show` returned, changed behind the note alone."""
        return Window(kept=self.kept, note=self.note, tail=items[len(self.kept) + (self.note is not None) :])

    def carry(self, carry: Callable[[list[Item]], list[Item]]) -> "Window":
        """Return the window in the engine's form; messages are the same there."""
        return Window(kept=self.kept, note=self.note, tail=carry(list(self.tail)))

    def compact(self, note: str, keep_bytes: int | None) -> "Window":
        """Return the window after all that waits for nothing was replaced.

        Args:
            note: what is shown in the place of it.
            keep_bytes: how much of the user's messages stays; None for all.
        """
        protected = find_protected(self.tail)
        messages = [*self.kept, *(item for item in self.tail[:protected] if _is_kept(item))]
        return Window(kept=_keep_newest(messages, keep_bytes), note=note, tail=self.tail[protected:])

    def summarized(self) -> list[Item]:
        """Return what the next note has to tell of."""
        return self._show(self.tail[: find_protected(self.tail)])

    def show(self) -> list[Item]:
        """Return the items for the model."""
        return self._show(self.tail)

    def _show(self, tail: Iterable[Item]) -> list[Item]:
        note = [] if self.note is None else [build_note_message(self.note)]
        return [*self.kept, *note, *tail]


def build_window(items: Sequence[Item], notes: Mapping[int, str], keep_bytes: int | None) -> Window:
    """Return the window of a conversation.

    Args:
        items: all of it, oldest first.
        notes: what its compaction items say, by their position; others are left as they are.
        keep_bytes: as for `Window.compact`.
    """
    if not notes:
        return Window(tail=items)
    newest = max(notes)
    before = [item for position, item in enumerate(items[:newest]) if position not in notes]
    return Window(tail=before).compact(notes[newest], keep_bytes).extend(items[newest + 1 :])


def build_note_message(note: str) -> Item:
    """Return a note as a model is shown it."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": PREAMBLE + note}]}


def find_protected(items: Sequence[Item]) -> int:
    """Return from where on items must stay as they are: the first that belongs to a call without an output.

    No output is parted from its call. Requests for an approval wait as calls do.
    """
    calls: dict[str, int] = {}
    pairs: list[tuple[int, int]] = []
    for position, item in enumerate(items):
        kind = item.get("type")
        if kind in CLIENT_CALLS:
            calls[str(item.get("call_id"))] = position
        elif kind in CLIENT_OUTPUTS:
            key = str(item.get("call_id"))
            if key in calls:
                pairs.append((calls.pop(key), position))
        elif kind == "mcp_approval_request":
            calls[f"approval {item.get('id')}"] = position
        elif kind == "mcp_approval_response":
            calls.pop(f"approval {item.get('approval_request_id')}", None)
    first = min(calls.values(), default=len(items))
    for call, output in reversed(pairs):
        if output > first:
            first = min(first, call)
    return first


# ---------------------------------------------------------------- how long it is


def estimate_tokens(value: Any) -> int:
    """Return about how many tokens a model reads in items, tools or a text; images count 1,024 each."""
    size = images = items = 0
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, str):
            size += text_bytes(current)
        elif isinstance(current, dict):
            if current.get("type") == "input_image":
                images += 1
                continue
            items += "type" in current
            pending.extend(member for key, member in current.items() if key not in _UNSEEN)
        elif isinstance(current, list | tuple):
            pending.extend(current)
    return math.ceil(size / _BYTES_PER_TOKEN) + items * _TOKENS_PER_ITEM + images * _TOKENS_PER_IMAGE


# ---------------------------------------------------------------- what a request says of it


def read_threshold(entries: Sequence[Any] | None, default: int | None) -> int | None:
    """Return from how many tokens on a request wants its window compacted, or None; of several entries the last counts.

    Args:
        entries: `context_management` of the request.
        default: for an entry that names none; None where that is found out later.

    Raises:
        InvalidRequest: names the entry and what is expected of it.
    """
    if not entries:
        return None
    threshold = None
    for index, entry in enumerate(entries):
        path = f"context_management[{index}]"
        if not isinstance(entry, dict):
            raise InvalidRequest(f"'{path}' must be an object.", code="invalid_value", param=path)
        if entry.get("type") != COMPACTION:
            raise InvalidRequest(
                f"'{path}.type' must be 'compaction'; nothing else is offered.",
                code="invalid_value",
                param=f"{path}.type",
            )
        given = entry.get("compact_threshold")
        threshold = default if given is None else given
        if given is not None and (type(given) is not int or given < 1):
            raise InvalidRequest(
                f"'{path}.compact_threshold' must be a whole number of tokens, at least 1.",
                code="invalid_value",
                param=f"{path}.compact_threshold",
            )
    return threshold


def refuse_compaction(param: str | None) -> InvalidRequest:
    """Return the error for what needs sealing keys where there are none."""
    what = f"'{param}' is not supported." if param else "Nothing can be compacted."
    return InvalidRequest(
        f"{what} The operator switches compaction on with [security] seal_keys and [compaction] mode.",
        code="unsupported_parameter",
        param=param,
    )


def split_trigger(given: Any) -> tuple[Any, bool]:
    """Return the input of a request without the `compaction_trigger` at its end, and whether there was one."""
    if isinstance(given, list) and given and isinstance(given[-1], dict) and given[-1].get("type") == TRIGGER:
        return given[:-1], True
    return given, False


# ---------------------------------------------------------------- what is sealed


def write_note(note: str) -> bytes:
    """Return what is sealed of a note."""
    return codec.encode({"version": _VERSION, "note": note})


def read_note(opened: bytes) -> str | None:
    """Return the note, or None where another version of the gateway wrote something else."""
    content = codec.decode(opened)
    note = content.get("note") if isinstance(content, dict) and content.get("version") == _VERSION else None
    return note if isinstance(note, str) else None


def _is_kept(item: Item) -> bool:
    return item.get("type") == "message" and item.get("role") in _KEPT_ROLES


def _keep_newest(messages: Sequence[Item], most: int | None) -> list[Item]:
    """Return the newest of the user's messages as far as they fit, at least one, and all those of the application."""
    if most is None:
        return list(messages)
    kept: list[Item] = []
    left, ended, newest = most, False, True
    for item in reversed(messages):
        if item["role"] == "user":
            if not ended:
                left -= len(codec.encode(item))
                ended = left < 0 and not newest
            newest = False
            if ended:
                continue
        kept.append(item)
    kept.reverse()
    return kept
