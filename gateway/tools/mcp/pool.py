"""Sessions: kept for servers of the configuration, and one for each response with any other.

A kept session belongs to one caller, as servers may remember what it did there; only programs have one for all. Whoever
holds a lease uses a session that lives; what was idle for long, or failed its last request, is asked for a sign of life
first.
"""

import asyncio
import importlib
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, Final

from gateway.config.schema import McpConfig
from gateway.telemetry.loads import Level
from gateway.tools.mcp.exchange import Exchange, ServerFault
from gateway.tools.mcp.targets import Program, Target

if TYPE_CHECKING:
    from gateway.tools.mcp.session import Session

_GONE: Final = 404
_PING_SECONDS: Final = 5.0
_FIRST_BACKOFF: Final = 1.0
_MOST_DOUBLINGS: Final = 16


class Pool:
    """The sessions of a process.

    Args:
        config: how many are kept, and how long.
        open_sessions: how many there are.
    """

    def __init__(self, config: McpConfig, open_sessions: Level) -> None:
        self.config = config
        self._open_sessions = open_sessions
        self._kept: dict[Hashable, _Kept] = {}
        self._sessions: set[Session] = set()
        self._closed = False

    def lease(self, target: Target, key: Hashable | None) -> "Lease":
        """Return what a response uses a server through; nothing is opened yet.

        Args:
            target: the server.
            key: what a session is kept under, or None for one that ends with the response.
        """
        if key is None:
            return Lease(self, _Kept(target))
        kept = self._kept.setdefault(key, _Kept(target))
        kept.users += 1
        return Lease(self, kept, key)

    async def open(self, target: Target) -> "Session":
        """Return a new session.

        Raises:
            ServerFault: there can be none.
        """
        if self._closed:
            raise ServerFault("is not called any more, as the gateway is stopping")
        # Loading the SDK takes most of a second of one core, which the event loop need not stand still for.
        connections = await asyncio.to_thread(importlib.import_module, "gateway.tools.mcp.connections")
        session: Session = connections.build_session(target, self.config)
        self._sessions.add(session)
        self._open_sessions.set(len(self._sessions))
        session.when_closed(self._forget)
        await session.start(self.config.connect_timeout_seconds)
        return session

    def give_back(self, key: Hashable) -> None:
        """Take note that somebody no longer uses a kept session."""
        kept = self._kept.get(key)
        if kept is None:
            return  # the pool was closed
        kept.users -= 1
        if kept.users:
            return
        if kept.session is None and not kept.failures:
            del self._kept[key]
            return
        loop = asyncio.get_running_loop()
        kept.idle_since = loop.time()
        kept.expiry = loop.call_later(self.config.session_idle_seconds, self._expire, key, kept.idle_since)
        idle = sorted((one.idle_since, name) for name, one in self._kept.items() if not one.users)
        for _, name in idle[: max(0, len(idle) - self.config.max_idle_sessions)]:
            self._drop(name)

    async def close(self) -> None:
        """End every session, and wait until they have ended."""
        self._closed = True
        for key in list(self._kept):
            self._drop(key)
        sessions = list(self._sessions)
        for session in sessions:
            session.stop()
        for session in sessions:
            await session.closed()

    def _expire(self, key: Hashable, since: float) -> None:
        kept = self._kept.get(key)
        if kept is not None and not kept.users and kept.idle_since == since:
            self._drop(key)

    def _drop(self, key: Hashable) -> None:
        kept = self._kept.pop(key)
        if kept.expiry is not None:
            kept.expiry.cancel()
        if kept.session is not None:
            kept.session.stop()

    def _forget(self, session: "Session") -> None:
        self._sessions.discard(session)
        self._open_sessions.set(len(self._sessions))


class _Kept:
    """A session, what is known of it, and who uses it."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.session: Session | None = None
        self.opening = asyncio.Lock()
        self.users = 0
        self.idle_since = 0.0
        self.started_at = 0.0
        self.used_at = 0.0
        self.doubtful = False
        self.failures = 0
        self.retry_at = 0.0
        self.expiry: asyncio.TimerHandle | None = None


class Lease:
    """What one response uses one server through."""

    def __init__(self, pool: Pool, kept: _Kept, key: Hashable | None = None) -> None:
        self._pool = pool
        self._kept = kept
        self._key = key
        self._released = False

    @property
    def session(self) -> "Session | None":
        """The session, once there is one."""
        return self._kept.session

    async def request(
        self, method: str, params: dict[str, Any], *, timeout: float, bound: str | None, exchange: Exchange
    ) -> dict[str, Any]:
        """Send a request as `Session.request`, over a session that is opened if there is none that lives.

        Raises:
            ServerFault: there is none, or as `Session.request`.
        """
        session = await self._provide()
        try:
            return await session.request(method, params, timeout=timeout, bound=bound, exchange=exchange)
        except ServerFault:
            if exchange.status != _GONE or session.session_id is None:
                self._kept.doubtful = True
                raise
        # The server has forgotten the session, and has done nothing: it says so by the status.
        session.stop()
        again = Exchange(exchange.allowance)
        session = await self._provide()
        result = await session.request(method, params, timeout=timeout, bound=bound, exchange=again)
        exchange.counted = again.counted
        return result

    def release(self) -> None:
        """Let others use the session, or end it. Idempotent."""
        if self._released:
            return
        self._released = True
        if self._key is not None:
            self._pool.give_back(self._key)
        elif self._kept.session is not None:
            self._kept.session.stop()

    async def _provide(self) -> "Session":
        kept, now = self._kept, asyncio.get_running_loop().time
        async with kept.opening:
            session = kept.session
            if session is not None and session.alive and await self._is_well(session):
                kept.used_at = now()
                kept.doubtful = False
                return session
            if session is not None:
                session.stop()
                kept.session = None
                self._postpone(lived=now() - kept.started_at)
            if kept.retry_at > now():
                raise ServerFault(f"did not start or ended; it is tried again in {kept.retry_at - now():.1f} s")
            try:
                kept.session = session = await self._pool.open(kept.target)
            except ServerFault:
                self._postpone(lived=0)
                raise
            kept.started_at = kept.used_at = now()
            kept.doubtful = False
            return session

    async def _is_well(self, session: "Session") -> bool:
        """Ask a session for a sign of life if that is called for."""
        idle = asyncio.get_running_loop().time() - self._kept.used_at
        if not self._kept.doubtful and idle <= self._pool.config.session_check_seconds:
            return True
        try:
            await session.request("ping", {}, timeout=_PING_SECONDS, bound=None, exchange=Exchange())
        except ServerFault:
            return False
        return True

    def _postpone(self, *, lived: float) -> None:
        """Let a program rest before its next start, the longer the oftener it ended without having served for long."""
        kept, longest = self._kept, self._pool.config.restart_backoff_seconds
        if not isinstance(kept.target, Program):
            return
        if lived > longest:
            kept.failures = 0
            return
        kept.retry_at = asyncio.get_running_loop().time() + min(longest, _FIRST_BACKOFF * 2**kept.failures)
        kept.failures = min(kept.failures + 1, _MOST_DOUBLINGS)
