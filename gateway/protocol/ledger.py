"""Retained accounting: what a turn keeps in memory, measured logically and replaced slot by slot.

A value (object, array, string, number, boolean or null) costs 32 bytes, a string its UTF-8 bytes on top; object keys
are free. Buffers that still grow are charged by their length and never scanned again. A snapshot replaces the charge
of its slot. It is accounting, not a bound of the process's memory.
"""

from collections import defaultdict
from typing import Any

from gateway.protocol.errors import ResourceLimitExceeded

VALUE_BYTES = 32


def text_bytes(text: str) -> int:
    """Return the UTF-8 length of a text; a lone surrogate counts three bytes, as its replacement would."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def charge(value: Any) -> int:
    """Return the charge of a decoded JSON value, at any depth, without recursion."""
    total = 0
    pending = [value]
    while pending:
        current = pending.pop()
        total += VALUE_BYTES
        if isinstance(current, str):
            total += text_bytes(current)
        elif isinstance(current, dict):
            pending.extend(current.values())
        elif isinstance(current, list | tuple):
            pending.extend(current)
    return total


class Ledger:
    """The sum of all slots of one turn, never above its limit.

    A refused change leaves the ledger as it was. Every change is one synchronous step of the turn's owner, so
    concurrent tools cannot pass the limit together.
    """

    __slots__ = ("_limit", "_slots", "_total")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._slots: defaultdict[object, int] = defaultdict(int)
        self._total = 0

    @property
    def total(self) -> int:
        """Retained bytes now."""
        return self._total

    @property
    def limit(self) -> int:
        """The limit in bytes."""
        return self._limit

    def fits(self, amount: int) -> bool:
        """Tell whether `amount` more bytes would be accepted."""
        return self._total + amount <= self._limit

    def grow(self, slot: object, amount: int) -> None:
        """Add `amount` bytes (may be negative) to a slot.

        Raises:
            ResourceLimitExceeded: the sum would pass `max_retained_bytes`.
        """
        total = self._total + amount
        if total > self._limit:
            raise ResourceLimitExceeded("max_retained_bytes", self._limit)
        self._slots[slot] += amount
        self._total = total

    def replace(self, slot: object, amount: int) -> None:
        """Set a slot to `amount` bytes, whatever it was charged before.

        Raises:
            ResourceLimitExceeded: the sum would pass `max_retained_bytes`.
        """
        self.grow(slot, amount - self._slots.get(slot, 0))
