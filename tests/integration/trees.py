"""An inference server that answers for each agent of a tree, for tests over processes."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from harness.engine import Answer, in_turn
from harness.upstream import Reply, Request, Script

MARKER = re.compile(r"You are agent `([^`]*)`")
BETA = {"OpenAI-Beta": "responses_multi_agent=v1"}
ON = {"enabled": True}
ROOT, ALPHA = "/root", "/root/alpha"
TOOL = {"type": "function", "name": "get_proposal", "parameters": {"type": "object", "properties": {}}}


def play(script: Mapping[str, Sequence[Answer]]) -> Script:
    """Answer each agent with the next of its answers, the last again and again; without an agent with those of ''."""
    turns = {path: in_turn(*answers) for path, answers in script.items()}

    async def answer(request: Request, reply: Reply) -> None:
        await turns[agent_of(request.body)](request, reply)

    return answer


def agent_of(body: Mapping[str, Any]) -> str:
    """Return whose inference a request to the server is."""
    found = MARKER.search(body.get("instructions") or "")
    return found[1] if found else ""
