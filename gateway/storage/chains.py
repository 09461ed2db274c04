"""Histories in memory: a bounded number of bytes, the least recently used going first."""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TypeAlias

from msgspec import Struct

from gateway.ports import History, StoredAgent, StoredItem
from gateway.storage.rows import count_agent_bytes

# Owner and id: another owner's id is another key.
Key: TypeAlias = tuple[str, str]

# All is estimated from above: measuring it would cost more than keeping it.
# A slot of the dictionary with the entry, its key without its characters, and its time.
_ENTRY_BYTES = 608
# A link, with what lists its items and agents.
_LINK_BYTES = 256
# An item or an agent without its texts, and each of their characters in its widest form.
_ITEM_BYTES = 648
_CHARACTER_BYTES = 4


class Link:
    """The end of a history: some items, behind those of an older link that any number of younger ones may share.

    Args:
        items: what this link adds; the items of a tree of agents are nobody's history.
        parent: what came before.
        responses: how many responses it adds.
        agents: what it adds to a tree of agents, None if it is not of one.

    Attributes:
        responses: responses of the whole history.
        item_bytes: JSON of all its items and agents, as the store's bound counts them.
        weight: memory of this link alone, in bytes.
        total_weight: memory of the whole history, in bytes.
        holders: entries and held links that need this one.
    """

    __slots__ = ("_agents", "_items", "holders", "item_bytes", "parent", "responses", "total_weight", "weight")

    def __init__(
        self,
        items: Iterable[StoredItem],
        parent: "Link | None" = None,
        *,
        responses: int = 1,
        agents: Sequence[StoredAgent] | None = None,
    ) -> None:
        self._items = tuple(items) if agents is None else ()
        self._agents = agents if agents is None else tuple(agents)
        self.parent = parent
        self.holders = 0
        self.responses = responses
        self.item_bytes = characters = 0
        for item in self._items:
            self.item_bytes += len(item.data)
            characters += len(item.id) + len(item.type) + (len(item.call_id) if item.call_id else 0)
        self.weight = _LINK_BYTES + len(self._items) * _ITEM_BYTES + self.item_bytes + characters * _CHARACTER_BYTES
        if self._agents is not None:
            self.weight += sum(map(_weigh_agent, self._agents))
            self.item_bytes += count_agent_bytes(self._agents)
        self.total_weight = self.weight
        if parent is not None:
            self.responses += parent.responses
            self.total_weight += parent.total_weight
            # The agents know all that they need of what came before their tree.
            if self._agents is None or parent._agents is not None:  # noqa: SLF001
                self.item_bytes += parent.item_bytes

    def build_history(self, response_id: str) -> History:
        """Return all items, oldest first, or all that was kept of the agents of a tree."""
        if self._agents is not None:
            return self._build_tree(response_id)
        parts = []
        link: Link | None = self
        while link is not None:
            parts.append(link._items)  # noqa: SLF001
            link = link.parent
        items = tuple(chain.from_iterable(reversed(parts)))
        return History(response_id=response_id, items=items, responses=self.responses)

    def _build_tree(self, response_id: str) -> History:
        parts = []
        link: Link | None = self
        while link is not None:
            parts.append(link._agents or ())  # noqa: SLF001
            link = link.parent
        tree = tuple(chain.from_iterable(reversed(parts)))
        return History(response_id=response_id, items=(), responses=self.responses, tree=tree)


class Entry(Struct):
    """A history under its key.

    Attributes:
        link: its end.
        proven_at: monotonic seconds of a moment at which the response existed.
    """

    link: Link
    proven_at: float


class HistoryCache:
    """Keeps histories of up to `max_bytes` in all; what several of them share counts once.

    Attributes:
        bytes: memory of everything kept.
        evictions: entries that went to make room.
    """

    def __init__(self, max_bytes: int) -> None:
        self.bytes = 0
        self.evictions = 0
        self._max_bytes = max_bytes
        self._entries: OrderedDict[Key, Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, key: Key) -> Entry | None:
        """Return the entry, which is now the most recently used, or None."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def keep(self, key: Key, link: Link, proven_at: float) -> None:
        """Keep a history in the place of any other under its key, unless it alone is above the bound."""
        if key in self._entries:
            self.drop(key)
        weight = _weigh_key(key)
        if link.total_weight + weight > self._max_bytes:
            return
        self._entries[key] = Entry(link, proven_at)
        self.bytes += weight
        self._hold(link)
        while self.bytes > self._max_bytes:
            self.drop(next(iter(self._entries)))
            self.evictions += 1

    def drop(self, key: Key) -> None:
        """Forget a history, if it is there; what others share of it stays."""
        entry = self._entries.pop(key, None)
        if entry is not None:
            self.bytes -= _weigh_key(key)
            self._release(entry.link)

    def _hold(self, link: Link | None) -> None:
        while link is not None:
            link.holders += 1
            if link.holders > 1:
                return
            self.bytes += link.weight
            link = link.parent

    def _release(self, link: Link | None) -> None:
        while link is not None:
            link.holders -= 1
            if link.holders:
                return
            self.bytes -= link.weight
            link = link.parent


def _weigh_agent(agent: StoredAgent) -> int:
    """Return the memory of an agent in bytes."""
    characters = len(agent.path) + len(agent.parent_path or "") + len(agent.status)
    return _ITEM_BYTES + len(agent.state) + _CHARACTER_BYTES * characters


def _weigh_key(key: Key) -> int:
    principal, response_id = key
    return _ENTRY_BYTES + _CHARACTER_BYTES * (len(principal) + len(response_id))
