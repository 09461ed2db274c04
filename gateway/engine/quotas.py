"""What one principal may have in the making, and how often it may ask."""

from collections import OrderedDict
from collections.abc import Mapping

from gateway.config.schema import LimitsConfig
from gateway.engine.admission import Place
from gateway.protocol.errors import RateLimitExceeded

_SECONDS = 60.0
# When a place becomes free is not known.
_BUSY_RETRY_SECONDS = 1.0


class Allowance:
    """The requests that may still be made: a minute's worth at most, made up for evenly.

    Args:
        per_minute: requests of a minute.
        now: monotonic seconds.

    Attributes:
        per_minute: requests of a minute.
    """

    __slots__ = ("_at", "_left", "per_minute")

    def __init__(self, per_minute: int, now: float) -> None:
        self.per_minute = per_minute
        self._left = float(per_minute)
        self._at = now

    def resize(self, per_minute: int, now: float) -> None:
        """Allow another number from now on; what has been used up stays used up."""
        if per_minute != self.per_minute:
            self._refill(now)
            self._left = max(0.0, self._left + per_minute - self.per_minute)
            self.per_minute = per_minute

    def wait(self, now: float) -> float:
        """Return the seconds until one more request may be made, 0 if it may be now."""
        self._refill(now)
        return max(0.0, (1.0 - self._left) * _SECONDS / self.per_minute)

    def take(self) -> None:
        """Count one request."""
        self._left -= 1.0

    def describe(self) -> dict[str, str]:
        """Return it as the headers by which clients know it, as of the last look."""
        reset = (self.per_minute - self._left) * _SECONDS / self.per_minute
        return {
            "x-ratelimit-limit-requests": str(self.per_minute),
            "x-ratelimit-remaining-requests": str(max(0, int(self._left))),
            "x-ratelimit-reset-requests": f"{reset:.3f}s",
        }

    def _refill(self, now: float) -> None:
        self._left = min(self.per_minute, self._left + (now - self._at) * self.per_minute / _SECONDS)
        self._at = now


class _Account:
    """What one principal has in the making, and its allowance where there is one."""

    __slots__ = ("active", "allowance")

    def __init__(self) -> None:
        self.active = 0
        self.allowance: Allowance | None = None


class Quotas:
    """Counts by principal and refuses what is too much.

    Args:
        limits: how much that is.
        now: monotonic seconds.

    Attributes:
        apply: whether anything is limited at all.
    """

    def __init__(self, limits: LimitsConfig, now: float) -> None:
        self._accounts: OrderedDict[str, _Account] = OrderedDict()
        self._all: Allowance | None = None
        self.reconfigure(limits, now)

    def reconfigure(self, limits: LimitsConfig, now: float) -> None:
        """Use other limits from now on; what has been counted counts on."""
        self._limits = limits
        self.apply = bool(
            limits.max_concurrent_per_principal
            or limits.requests_per_minute_per_principal
            or limits.requests_per_minute
        )
        self._all = _resize(self._all, limits.requests_per_minute, now)
        for account in self._accounts.values():
            account.allowance = _resize(account.allowance, limits.requests_per_minute_per_principal, now)

    def enter(self, place: Place, principal: str, now: float) -> Place:
        """Count one response of the principal for as long as its place is held.

        Args:
            place: held for the response already; given back if it is refused.
            principal: who asks.
            now: monotonic seconds.

        Returns:
            The place to hold instead; it tells how many more there may be.

        Raises:
            RateLimitExceeded: it is one too many; nothing was counted.
        """
        account = self._find(principal, now)
        try:
            allowances = self._check(account, now)
        except RateLimitExceeded:
            place.leave()
            raise
        for allowance in allowances:
            allowance.take()
        return _count(account, place, allowances[0].describe() if allowances else None)

    def hold(self, place: Place, principal: str, now: float) -> Place:
        """Count one response of the principal, however many there are, for as long as its place is held."""
        return _count(self._find(principal, now), place)

    def _check(self, account: _Account, now: float) -> list[Allowance]:
        """Return the allowances that one more response uses up."""
        limits = self._limits
        if 0 < limits.max_concurrent_per_principal <= account.active:
            raise RateLimitExceeded(
                f"You have {account.active} responses in the making, the most you may have at once "
                "([limits] max_concurrent_per_principal); wait until one has ended.",
                bound="limits.max_concurrent_per_principal",
                retry_after=_BUSY_RETRY_SECONDS,
            )
        if account.allowance is not None and (wait := account.allowance.wait(now)):
            raise _too_often("You have", account.allowance, "requests_per_minute_per_principal", wait)
        if self._all is not None and (wait := self._all.wait(now)):
            raise _too_often("All callers together have", self._all, "requests_per_minute", wait)
        return [allowance for allowance in (account.allowance, self._all) if allowance is not None]

    def _find(self, principal: str, now: float) -> _Account:
        account = self._accounts.get(principal)
        if account is None:
            return self._open(principal, now)
        self._accounts.move_to_end(principal)
        return account

    def _open(self, principal: str, now: float) -> _Account:
        accounts = self._accounts
        if len(accounts) >= self._limits.max_principals:
            # Those that have something under way are few: no more than there may be responses at once.
            idle = next((name for name, account in accounts.items() if not account.active), None)
            if idle is not None:
                del accounts[idle]
        account = accounts[principal] = _Account()
        account.allowance = _resize(None, self._limits.requests_per_minute_per_principal, now)
        return account


def _count(account: _Account, place: Place, headers: Mapping[str, str] | None = None) -> Place:
    account.active += 1

    def leave() -> None:
        account.active -= 1
        place.leave()

    return Place(leave, headers)


def _resize(allowance: Allowance | None, per_minute: int, now: float) -> Allowance | None:
    if not per_minute:
        return None
    if allowance is None:
        return Allowance(per_minute, now)
    allowance.resize(per_minute, now)
    return allowance


def _too_often(subject: str, allowance: Allowance, key: str, wait: float) -> RateLimitExceeded:
    return RateLimitExceeded(
        f"{subject} made the {allowance.per_minute} requests that a minute allows ([limits] {key}); "
        f"try again in {wait:.3g} seconds.",
        bound=f"limits.{key}",
        retry_after=wait,
        headers=allowance.describe(),
    )
