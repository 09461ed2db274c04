"""How much each principal may keep in the database."""

import math
from collections import OrderedDict

from gateway.config.schema import GatewayConfig
from gateway.ports import Clock, Store
from gateway.protocol.errors import InsufficientQuota

_NEVER = -math.inf


class _Kept:
    """What one principal keeps: the sum as read from the database, and what was stored from here since.

    Attributes:
        read_at: monotonic seconds at which that sum was last asked for.
        added: bytes stored from here in all.
    """

    __slots__ = ("_base", "added", "read_at")

    def __init__(self) -> None:
        self.read_at = _NEVER
        self.added = 0
        self._base = 0

    @property
    def bytes(self) -> int:
        """What is kept, as far as it is known."""
        return self._base + self.added

    def rebase(self, found: int, added: int) -> None:
        """Take over a sum that was asked for when so much had been added."""
        # What was stored meanwhile may be in the sum; rather twice than not at all.
        self._base = found - added


class Room:
    """Refuses to have more stored for a principal who keeps too much.

    The database is asked for the sum when a principal first stores something, and again once the answer is
    `[storage] quota_revalidate_seconds` old; in between, what is stored from here is added. So what others store, or
    remove, is noticed that late, and each response under way at the bound may still pass it.

    Args:
        store: knows the sums.
        clock: tells how old they are.
        config: how much may be kept, and for how many principals that is remembered.

    Attributes:
        is_limited: whether anything is refused at all.
    """

    def __init__(self, store: Store, clock: Clock, config: GatewayConfig) -> None:
        self._store = store
        self._clock = clock
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self.reconfigure(config)

    def reconfigure(self, config: GatewayConfig) -> None:
        """Use other bounds from now on."""
        self._max_bytes = config.storage.max_bytes_per_principal
        self._revalidate_seconds = config.storage.quota_revalidate_seconds
        self._max_principals = config.limits.max_principals
        self.is_limited = bool(self._max_bytes)
        if not self.is_limited:
            self._kept.clear()

    async def check(self, principal: str) -> None:
        """Return if the principal may have one more response stored.

        Raises:
            InsufficientQuota: it keeps as much as it may.
            StorageUnavailable: the database does not say how much.
        """
        kept = self._kept.get(principal)
        if kept is None:
            kept = self._kept[principal] = _Kept()
            if len(self._kept) > self._max_principals:
                self._kept.popitem(last=False)
        else:
            self._kept.move_to_end(principal)
        now = self._clock.monotonic()
        if now - kept.read_at >= self._revalidate_seconds:
            await self._read(principal, kept, now)
        if kept.bytes >= self._max_bytes:
            raise InsufficientQuota(
                f"Your stored responses and conversations take {kept.bytes} bytes, and {self._max_bytes} is all they "
                "may ([storage] max_bytes_per_principal). Delete some with DELETE /v1/responses/ID or "
                "/v1/conversations/ID, which makes room when they are removed, wait until old responses have expired, "
                "or send store: false without a conversation.",
                bound="storage.max_bytes_per_principal",
            )

    def add(self, principal: str, size: int) -> None:
        """Note that so many bytes were stored."""
        kept = self._kept.get(principal)
        if kept is not None:
            kept.added += size

    async def _read(self, principal: str, kept: _Kept, now: float) -> None:
        # Whoever comes meanwhile goes by what is known, so that the database is asked once.
        kept.read_at = now
        added = kept.added
        try:
            found = await self._store.stored_bytes(principal)
        except BaseException:
            kept.read_at = _NEVER
            raise
        kept.rebase(found, added)
