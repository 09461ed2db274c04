"""Mints and checks the gateway's own ids: `<prefix>_<32 hex digits of a UUIDv7>`.

The only module of this floor that reads a clock or a random source.
"""

import os
import re
import time

_RANDOM_BYTES = 10
_BATCH = 64
# What becomes of a random byte whose high bits say version 7, or the variant of RFC 9562.
_VERSION = bytes(0x70 | byte & 0x0F for byte in range(256))
_VARIANT = bytes(0x80 | byte & 0x3F for byte in range(256))
_SHAPE = re.compile(r"[a-z]+_[0-9a-f]{32}\Z")

# The prefixes clients know from the API; they never parse them, people do.
PREFIXES: dict[str, str] = {
    "response": "resp",
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "function_call_output": "fco",
    "custom_tool_call": "ctc",
    "custom_tool_call_output": "ctco",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "local_shell_call": "lsh",
    "local_shell_call_output": "lsho",
    "apply_patch_call": "apc",
    "apply_patch_call_output": "apco",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "computer_call": "cu",
    "computer_call_output": "cuo",
    "web_search_call": "ws",
    "file_search_call": "fs",
    "code_interpreter_call": "ci",
    "image_generation_call": "ig",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
    "compaction": "cmp",
    "multi_agent_call": "mac",
    "multi_agent_call_output": "maco",
    "agent_message": "amsg",
    "conversation": "conv",
    "steer": "steer",
    "call": "call",
    "request": "req",
}


def prefix_of(kind: str) -> str:
    """Return the id prefix of an object or item type; `item` for types without one of their own."""
    return PREFIXES.get(kind, "item")


def is_minted(value: str) -> bool:
    """Tell whether a string has the shape of an id minted here."""
    return _SHAPE.match(value) is not None


class UuidIds:
    """Mints UUIDv7 ids (RFC 9562): 48 bits of milliseconds, then random bits, so ids sort by time.

    Random bytes are fetched for many ids at once: each fetch is a system call that gives up the interpreter lock. A
    forked process must not share an instance.
    """

    __slots__ = ("_millisecond", "_stamp", "_tails")

    def __init__(self) -> None:
        self._tails: list[str] = []
        self._millisecond = -1
        self._stamp = ""

    def mint(self, prefix: str) -> str:
        """Return `<prefix>_<32 hex digits>`."""
        if not self._tails:
            self._tails = _draw_tails()
        now = time.time_ns() // 1_000_000
        if now != self._millisecond:
            # Of several ids within a millisecond only the first pays for its digits.
            self._millisecond, self._stamp = now, f"_{now:012x}"
        return prefix + self._stamp + self._tails.pop()


def _draw_tails() -> list[str]:
    """Return the random digits of many ids, with version and variant; all at once, which takes a tenth of the time."""
    drawn = bytearray(os.urandom(_RANDOM_BYTES * _BATCH))
    drawn[::_RANDOM_BYTES] = drawn[::_RANDOM_BYTES].translate(_VERSION)
    drawn[2::_RANDOM_BYTES] = drawn[2::_RANDOM_BYTES].translate(_VARIANT)
    return drawn.hex(" ", _RANDOM_BYTES).split(" ")
