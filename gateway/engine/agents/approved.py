"""Calls that a client has approved, and that are still to be run."""

from collections.abc import Sequence
from typing import Any

Item = dict[str, Any]


def find_approved(history: Sequence[Item]) -> list[Item]:
    """Return the requests for an approval that were granted, and whose call has not been run, oldest first.

    Args:
        history: of one agent, in tree form.
    """
    granted = {
        item["approval_request_id"]
        for item in history
        if item["type"] == "mcp_approval_response" and item.get("approve") is True
    }
    if not granted:
        return []
    for item in history:
        if item["type"] == "function_call_output":
            granted.discard(item["call_id"])
        elif item["type"] == "mcp_call":
            granted.discard(item.get("approval_request_id"))
    return [item for item in history if item["type"] == "mcp_approval_request" and item["id"] in granted]
