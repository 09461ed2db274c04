"""Callers with keys of the gateway's own: mode `api_keys`."""

import asyncio
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from hmac import compare_digest
from math import inf
from typing import Final

from msgspec import Struct

from gateway.ports import ApiKey, Clock, Identity, KeyBook, KeysUnreadable
from gateway.protocol.credentials import read_bearer
from gateway.protocol.errors import Unauthorized, Unavailable
from gateway.telemetry import names
from gateway.telemetry.audit import note_action
from gateway.telemetry.metrics import Metrics
from gateway.transport.auth import NO_CREDENTIAL

# How soon a key that was made meanwhile is looked for again, whoever asks how often.
_LOOK_AGAIN_SECONDS: Final = 1.0
_NAMED_CHANGES: Final = 50

_logger = logging.getLogger(names.LOGGER_SERVER)


class _Known(Struct, frozen=True):
    digest: bytes
    identity: Identity


_NOBODY = _Known(bytes(32), Identity(principal=""))


class KeyRing:
    """Knows the keys that count by heart, and learns by itself what becomes of them.

    Every key is in memory, so that a request costs no question and an unknown key costs no more than a known one. They
    are looked at again twice in `revalidate_seconds`, so that every replica knows of a revocation after that time.

    Args:
        book: where the keys are kept.
        revalidate_seconds: how late a change may be noticed.
        max_stale_seconds: how long the keys go on when they cannot be looked at any more.
        timeout_seconds: how long a look is waited for.
        clock: tells whether a key has expired.
        metrics: what is counted.
    """

    def __init__(
        self,
        book: KeyBook,
        *,
        revalidate_seconds: float,
        max_stale_seconds: float,
        timeout_seconds: float,
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._book = book
        self._interval = revalidate_seconds / 2
        self._max_stale_seconds = max_stale_seconds
        self._timeout_seconds = timeout_seconds
        self._clock = clock
        self._metrics = metrics
        self._keys: Mapping[str, ApiKey] = {}
        self._known: dict[str, _Known] = {}
        self._read_at = self._tried_at = self._looked_at = -inf
        self._looking: asyncio.Task[Mapping[str, ApiKey]] | None = None
        self._failing = False
        self._lock = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the keys; where they cannot be read yet, requests are refused with 503 until they can."""
        await self._read()
        self._task = asyncio.create_task(self._follow(), name="keys")

    def refresh(self) -> None:
        """Read the keys again, soon."""
        self._wanted.set()

    def recall(self, credential: bytes | None) -> Identity | None:
        """Return the owner of a key that is known and counts."""
        return None if credential is None or self._is_stale() else self._match(credential)

    async def authenticate(self, credential: bytes | None) -> Identity:
        """Return the owner of the key, also of one that was made a moment ago.

        Raises:
            Unauthorized: there is no key, or one that counts for nothing; which of both it was is not told.
            Unavailable: the keys cannot be read.
        """
        asked_at = self._clock.monotonic()
        async with self._lock:
            if self._tried_at + _LOOK_AGAIN_SECONDS <= asked_at:
                await self._read()
        if self._is_stale():
            raise _unreadable()
        identity = None if credential is None else self._match(credential)
        if identity is None:
            raise Unauthorized(NO_CREDENTIAL)
        return identity

    def holds(self, identity: Identity) -> bool:
        """Tell whether the key of an identity given before is still there, unchanged, and has not expired.

        Raises:
            Unavailable: the keys cannot be read.
        """
        if identity.key_id is None:
            return True
        if self._is_stale():
            raise _unreadable()
        known = self._known.get(identity.key_id)
        return known is not None and known.identity == identity and not self._has_expired(identity)

    async def close(self) -> None:
        """End the looking, and close the book."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)
        await asyncio.to_thread(self._book.close)

    def _match(self, credential: bytes) -> Identity | None:
        given = read_bearer(credential)
        if given is None:
            return None
        key_id, digest = given
        known = self._known.get(key_id, _NOBODY)
        return (
            known.identity if compare_digest(known.digest, digest) and not self._has_expired(known.identity) else None
        )

    def _has_expired(self, identity: Identity) -> bool:
        return identity.expires_at is not None and identity.expires_at <= self._clock.now()

    def _is_stale(self) -> bool:
        return self._clock.monotonic() - self._read_at > self._max_stale_seconds

    async def _follow(self) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wanted.wait(), self._interval)
            self._wanted.clear()
            try:
                async with self._lock:
                    await self._read()
            # A fault must not end the looking, or no revocation would be noticed any more.
            except Exception:
                _logger.exception("the keys of callers could not be looked at")

    async def _read(self) -> None:
        """Learn the keys anew; a fault leaves those that are known."""
        self._tried_at = self._clock.monotonic()
        try:
            keys = await self._look()
        except KeysUnreadable as error:
            self._metrics.api_key_reads_total.labels("failed").inc()
            if not self._failing:
                # The traceback would tell nothing.
                _logger.error("the keys of callers cannot be read; known ones go on for a while: %s", error)  # noqa: TRY400
            self._failing = True
            return
        if self._failing:
            _logger.info("the keys of callers can be read again")
        self._failing = False
        self._metrics.api_key_reads_total.labels("read").inc()
        self._read_at = self._looked_at
        if keys is not self._keys:
            self._learn(keys)

    async def _look(self) -> Mapping[str, ApiKey]:
        """Return what the book holds. A look that takes too long goes on, and nobody begins another beside it."""
        if self._looking is None:
            self._looked_at = self._clock.monotonic()
            self._looking = asyncio.create_task(asyncio.to_thread(self._book.read), name="keys-look")
        looking = self._looking
        if not (await asyncio.wait({looking}, timeout=self._timeout_seconds))[0]:
            raise KeysUnreadable(f"no answer within {self._timeout_seconds:g} seconds ([auth] keys_timeout_seconds).")
        self._looking = None
        return looking.result()

    def _learn(self, keys: Mapping[str, ApiKey]) -> None:
        added = sorted(keys.keys() - self._keys.keys())
        gone = sorted(self._keys.keys() - keys.keys())
        self._known = {
            key.id: _Known(
                bytes.fromhex(key.digest),
                Identity(principal=key.principal, expires_at=key.expires_at, key_id=key.id),
            )
            for key in keys.values()
        }
        if added or gone:
            note_action(
                "keys read",
                actor=f"process {os.getpid()}",
                object="keys of callers",
                outcome=f"{len(keys)} known, {len(added)} of them new, {len(gone)} gone",
                **{names.FIELD_KEYS_ADDED: added[:_NAMED_CHANGES], names.FIELD_KEYS_GONE: gone[:_NAMED_CHANGES]},
            )
        self._keys = keys
        self._metrics.api_keys.set(len(keys))


def _unreadable() -> Unavailable:
    return Unavailable("The gateway cannot look up keys at the moment; try again later.")
