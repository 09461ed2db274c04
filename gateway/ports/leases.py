"""Who of several processes may do something, for a while at a time."""

from typing import Protocol

from msgspec import Struct


class Lease(Struct, frozen=True, kw_only=True):
    """What is held, and by whom.

    Attributes:
        name: what is held, at most 255 characters, the same for everybody who wants it.
        holder: who holds it; unique for each time it is held, such as the id of the response it is held for.
    """

    name: str
    holder: str


class LeaseClaim(Struct, frozen=True, kw_only=True):
    """That a holder wants a lease.

    Attributes:
        lease: the lease.
        seconds: for how long.
    """

    lease: Lease
    seconds: float


class LeaseRenewal(Struct, frozen=True, kw_only=True):
    """That a holder wants to keep what it holds.

    Attributes:
        lease: the lease.
        seconds: for how long from now on.
    """

    lease: Lease
    seconds: float


class LeaseRelease(Struct, frozen=True, kw_only=True):
    """That a holder needs a lease no longer.

    Attributes:
        lease: the lease.
    """

    lease: Lease


class Leases(Protocol):
    """Leases that all processes of one database share. The database's clock alone decides when one has run out.

    A holder that was late keeps its lease as long as nobody else took it. So a lease is no proof for what is done with
    it: whatever must not happen twice checks the holder in the transaction in which it happens.
    """

    async def acquire(self, lease: Lease, seconds: float) -> bool:
        """Take a lease that nobody holds, or whose time is over; tell whether it is this holder's now.

        Asked again by the same holder, it is renewed.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        ...

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Keep a lease for so long from now on; tell whether it is still this holder's.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        ...

    async def release(self, lease: Lease) -> None:
        """Give a lease up, if this holder has it.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        ...
