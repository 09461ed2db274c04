"""Mending of replayed items, shared by the dialects.

A client replays what it was given: nulls, statuses of cut-off items, several parts. Servers read less than that.
Every function leaves its argument alone, and returns it where there is nothing to mend.
"""

from collections.abc import Callable
from typing import Any

Item = dict[str, Any]


def mend_items(body: dict[str, Any], mend: Callable[[Item], Item | None]) -> dict[str, Any]:
    """Return the body with every input item mended; an item mended to None is left out."""
    items = body.get("input")
    if not isinstance(items, list):
        return body
    mended = [done for item in items if (done := mend(item) if isinstance(item, dict) else item) is not None]
    return {**body, "input": mended}


def close_item(item: Item) -> Item:
    """Return the item as completed: a server may take an open one for the beginning of its own answer."""
    return {**item, "status": "completed"} if item.get("status") in ("in_progress", "incomplete") else item


def drop_empty_tools(body: dict[str, Any]) -> dict[str, Any]:
    """Return the body without an empty tool list, and without a choice that chose nothing from it."""
    if "tools" not in body or body["tools"]:
        return body
    kept = {key: value for key, value in body.items() if key != "tools"}
    if kept.get("tool_choice") in (None, "auto", "none"):
        kept.pop("tool_choice", None)
    return kept


def read_reasoning(item: Item) -> str:
    """Return the readable text of a reasoning item: its content, else its summary."""
    return join_text(item.get("content")) or join_text(item.get("summary"), "\n\n")


def join_text(parts: Any, separator: str = "") -> str:
    """Return the text of all parts, refusals included; parts without text are passed over."""
    if not isinstance(parts, list):
        return ""
    texts = [part.get("text", part.get("refusal")) for part in parts if isinstance(part, dict)]
    return separator.join(text for text in texts if isinstance(text, str))
