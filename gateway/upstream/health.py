"""Whether the server is well, and which kind it is."""

import asyncio
import logging
from collections.abc import Callable

from gateway.ports import Dialect, UpstreamHealth
from gateway.protocol.errors import UpstreamError
from gateway.upstream.control import ControlClient, Reply
from gateway.upstream.dialects import AUTO, find_dialect

_log = logging.getLogger("gateway.upstream")

# Until the server is recognised its restrictions are unknown, so it is asked more often than afterwards.
_UNRECOGNISED_INTERVAL = 1.0


class HealthMonitor:
    """Probes one server and remembers what it said.

    Args:
        control: where to ask.
        dialect: configured dialect, or `auto` to recognise the server.
        chat: the server is spoken to in Chat Completions.
        interval: seconds between probes.
        now: Unix seconds.
        name: the upstream's name in logs.
        on_healthy: called after every probe that found the server well.
    """

    def __init__(
        self,
        control: ControlClient,
        *,
        dialect: str,
        chat: bool = False,
        interval: float,
        now: Callable[[], float],
        name: str,
        on_healthy: Callable[[], None],
    ) -> None:
        self._control = control
        self._automatic = dialect == AUTO
        self._recognised = not self._automatic
        self._chat = chat
        self._dialect = find_dialect(dialect, chat=chat)
        self._interval = interval
        self._now = now
        self._name = name
        self._on_healthy = on_healthy
        self._health = UpstreamHealth(
            healthy=False, detail="not probed yet", checked_at=0.0, dialect=self._dialect.name
        )

    @property
    def dialect(self) -> Dialect:
        """The dialect in use; generic until the server is recognised."""
        return self._dialect

    @property
    def health(self) -> UpstreamHealth:
        """The last known health."""
        return self._health

    def reconfigure(self, *, interval: float) -> None:
        """Wait another time after every probe from now on."""
        self._interval = interval

    async def probe(self) -> UpstreamHealth:
        """Ask for the health now and remember it. Never raises."""
        try:
            healthy, detail = await self._ask()
        except UpstreamError as error:
            healthy, detail = False, error.message
        # The watch must outlive whatever a server may answer.
        except Exception:  # noqa: BLE001
            _log.exception("the probe of upstream %s failed", self._name)
            healthy, detail = False, "The probe met an unexpected fault; see the log."
        if self._automatic and not healthy:
            # Another kind of server may come back at the same address.
            self._recognised = False
        if healthy != self._health.healthy or not self._health.checked_at:
            level, word = (logging.INFO, "healthy") if healthy else (logging.WARNING, "not healthy")
            _log.log(level, "upstream %s is %s: %s", self._name, word, detail)
        self._health = UpstreamHealth(
            healthy=healthy, detail=detail, checked_at=self._now(), dialect=self._dialect.name
        )
        if healthy:
            self._on_healthy()
        return self._health

    async def watch(self) -> None:
        """Probe for ever."""
        while True:
            await self.probe()
            await asyncio.sleep(self._interval if self._recognised else min(self._interval, _UNRECOGNISED_INTERVAL))

    async def _ask(self) -> tuple[bool, str]:
        path = "/health"
        reply = await self._control.get(path)
        if reply.status in {404, 405}:
            # Not every server has a health route; all have models.
            path = "/v1/models"
            reply = await self._control.get(path)
        if reply.status != 200:
            return False, f"GET {path} was answered with {reply.status}"
        if not self._recognised:
            self._dialect = find_dialect(await self._recognise(reply), chat=self._chat)
            self._recognised = True
            _log.info("upstream %s speaks the %s dialect", self._name, self._dialect.name)
        return True, "ok"

    async def _recognise(self, health: Reply) -> str:
        if health.headers.get("server", "").lower().startswith("llama.cpp"):
            return "llamacpp"
        version = await self._control.get("/version")
        if version.status == 200 and isinstance(version.document().get("version"), str):
            return "vllm"
        props = await self._control.get("/props")
        if props.status == 200 and "default_generation_settings" in props.document():
            return "llamacpp"
        return "generic"
