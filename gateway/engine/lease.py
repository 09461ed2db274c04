"""Keeps what this process holds: one heartbeat for all its leases, and none while it has none."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gateway.ports import Lease, Leases
from gateway.protocol.errors import StorageUnavailable
from gateway.telemetry.names import LOGGER_ENGINE

# A lease outlives two heartbeats that came to nothing.
_HEARTBEATS = 3

_logger = logging.getLogger(LOGGER_ENGINE)


class LeaseKeeper:
    """Renews leases until they are released.

    A process that dies renews nothing, so that others may take what it held `seconds` later at the latest.

    Args:
        leases: where they are.
        seconds: how long a lease goes on by itself.
        sleep: waits for so many seconds.
    """

    def __init__(
        self, leases: Leases, seconds: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._leases = leases
        self.seconds = seconds
        self._sleep = sleep
        self._kept: dict[Lease, Callable[[], None]] = {}
        self._heartbeat: asyncio.Task[None] | None = None

    async def acquire(self, lease: Lease, lost: Callable[[], None]) -> bool:
        """Take a lease and keep it; tell whether it could be had.

        Args:
            lease: the lease.
            lost: called when it turns out to be somebody else's after all.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        acquired = await self._leases.acquire(lease, self.seconds)
        if acquired:
            self.keep(lease, lost)
        return acquired

    def keep(self, lease: Lease, lost: Callable[[], None]) -> None:
        """Renew a lease that has been taken, from now on."""
        self._kept[lease] = lost
        if self._heartbeat is None:
            self._heartbeat = asyncio.create_task(self._run(), name="leases")

    def forget(self, lease: Lease) -> None:
        """Renew a lease no longer; it has been given up, or may run out."""
        self._kept.pop(lease, None)
        if not self._kept and self._heartbeat is not None:
            self._heartbeat.cancel()
            self._heartbeat = None

    async def release(self, lease: Lease) -> None:
        """Give a lease up. Where the database does not take that, it runs out by itself."""
        self.forget(lease)
        try:
            await self._leases.release(lease)
        except StorageUnavailable as error:
            _logger.warning("a lease could not be given up and runs out by itself: %s", error.message)

    async def _run(self) -> None:
        while True:
            await self._sleep(self.seconds / _HEARTBEATS)
            # Together, so that they make one transaction.
            await asyncio.gather(*map(self._renew, list(self._kept)))

    async def _renew(self, lease: Lease) -> None:
        try:
            held = await self._leases.renew(lease, self.seconds)
        except StorageUnavailable as error:
            # It may still be ours when the database is back.
            _logger.warning("a lease could not be renewed: %s", error.message)
            return
        if not held and (lost := self._kept.get(lease)):
            self.forget(lease)
            lost()
