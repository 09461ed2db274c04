"""The server of the public listener: it drains before it stops."""

import asyncio
import gc
import logging
import socket
from collections.abc import Callable, Iterator, MutableSet
from typing import Any

from gateway.app import Gateway, StartError
from gateway.server.serving import LeavingServer
from gateway.telemetry.loads import Level
from gateway.telemetry.names import LOGGER_SERVER

_logger = logging.getLogger(LOGGER_SERVER)


class GatewayServer(LeavingServer):
    """A uvicorn server that drains before it stops.

    The first signal makes the gateway unready and refuse new responses while the listener stays open and running
    responses go on. When none is left, or `drain_seconds` have passed, what still runs ends as failed, the listener
    closes, and clients get their grace to take the last bytes. A second signal goes there at once, a third one skips
    the grace.

    Args:
        gateway: what is served, and drained.
        announce: called once, when connections are accepted.

    Attributes:
        gateway: as given.
        stops: how often it was told to stop.
    """

    def __init__(self, gateway: Gateway, announce: Callable[[], None]) -> None:
        upgrades = gateway.config.websocket.enabled
        self.gateway = gateway
        super().__init__(
            gateway.public,
            lambda: gateway.config,
            gateway.public.note_refusal,
            upgrades=upgrades,
            tls=lambda: gateway.tls,
        )
        self.server_state.connections = _Connections(gateway.parts.metrics.client_connections)  # type: ignore[assignment]
        self.stops = 0
        self._announce = announce
        self._drain: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections, then say so.

        Raises:
            StartError: another process, bound to the same address, began to listen first.
        """
        try:
            await super().startup(sockets)
        except OSError as error:
            raise StartError(f"the address cannot be listened on ({error.strerror}).") from error
        _settle_garbage_collection()
        self._announce()

    @property
    def forced(self) -> bool:
        """Whether a second signal has cut work off."""
        return self.stops > 1

    def stop(self, reason: str) -> None:
        """Begin the drain or, when it runs already, cut it short."""
        self.stops += 1
        if self._drain is None:
            seconds = self.settings.drain_seconds
            _logger.info("%s: draining for at most %g seconds", reason, seconds)
            self.gateway.begin_drain()
            self._drain = asyncio.get_running_loop().create_task(self._drain_then_exit(seconds))
            return
        self._drain.cancel()
        grace = self.settings.close_grace_seconds if self.stops == 2 else 0.0
        self._cut_off(f"{reason} again")
        self.exit(asyncio.get_running_loop().time() + grace)

    async def _drain_then_exit(self, seconds: float) -> None:
        now = asyncio.get_running_loop().time
        deadline = now() + seconds
        try:
            if not await self.gateway.drained(seconds):
                self._cut_off("[server] drain_seconds are over")
                # What it tells the callers has to reach them before their connections are closed.
                await self.gateway.drained(self.settings.close_grace_seconds)
        finally:
            self.exit(max(deadline, now() + self.settings.close_grace_seconds))

    def _cut_off(self, reason: str) -> None:
        _logger.warning("%s: cut off %d responses", reason, self.gateway.cut_off())


class _Connections(MutableSet[Any]):
    """The open connections, as uvicorn keeps them; their number is shown, however they come and go.

    Args:
        level: their number.
    """

    def __init__(self, level: Level) -> None:
        self._open: set[Any] = set()
        self._level = level

    def __contains__(self, connection: object) -> bool:
        return connection in self._open

    def __iter__(self) -> Iterator[Any]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: Any) -> None:
        self._open.add(connection)
        self._level.set(len(self._open))

    def discard(self, connection: Any) -> None:
        self._open.discard(connection)
        self._level.set(len(self._open))


def _settle_garbage_collection() -> None:
    """Take what was built at start out of the collector's sight, and let it look less often.

    A response leaves no reference cycles behind, so frequent passes over the live objects of other responses find
    nothing; a full pass every few hundred thousand allocations bounds what a stray cycle can hold.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
