"""The server's model list, asked for once by however many callers want it."""

import asyncio
from collections.abc import Callable
from typing import Any

from gateway.protocol.errors import UpstreamError, UpstreamUnavailable
from gateway.upstream.control import ControlClient
from gateway.upstream.refusals import read_refusal
from gateway.upstream.tasks import end_task

# How long nobody asks again behind callers' backs, whatever became of the last question.
_QUIET_SECONDS = 30.0


class ModelList:
    """A cached, single-flight `GET /v1/models`.

    Args:
        control: where to ask.
        fresh_seconds: how long an answer is used again; a failure never is.
        now: Unix seconds.
        secret: the gateway's own key, kept out of the server's refusals.
    """

    def __init__(
        self, control: ControlClient, *, fresh_seconds: float, now: Callable[[], float], secret: str | None
    ) -> None:
        self._control = control
        self._fresh_seconds = fresh_seconds
        self._now = now
        self._secret = secret
        self._models: list[dict[str, Any]] = []
        self._ids: frozenset[str] = frozenset()
        self._lengths: dict[str, int] = {}
        self._fresh_until = 0.0
        self._quiet_until = 0.0
        self._flight: asyncio.Task[None] | None = None

    def reconfigure(self, *, fresh_seconds: float, secret: str | None) -> None:
        """Keep answers for another time, and keep another key out of refusals, from the next answer on."""
        self._fresh_seconds = fresh_seconds
        self._secret = secret

    async def get(self) -> dict[str, Any]:
        """Return `{"object": "list", "data": [...]}`.

        Raises:
            UpstreamError: the server refused, stayed silent or answered something else.
        """
        flight = self._refresh()
        if flight is not None:
            # Waited for, not awaited: a caller that leaves must not take the answer from the others.
            await asyncio.wait({flight})
            if flight.cancelled():
                raise UpstreamUnavailable("The client of the inference server is closed.")
            flight.result()
        return {"object": "list", "data": list(self._models)}

    def holds(self, model: str) -> bool:
        """Tell whether the list has the model; if it has not, it is asked for again, but not all the time."""
        if model in self._ids:
            return True
        self._ask_quietly()
        return False

    def length_of(self, model: str) -> int | None:
        """Return the `max_model_len` of a model, None where the list tells none."""
        return self._lengths.get(model) if self.holds(model) else None

    def prime(self) -> None:
        """Ask for the list while there is none, but not all the time; nobody waits for it."""
        if not self._ids:
            self._ask_quietly()

    async def close(self) -> None:
        """Stop asking."""
        if self._flight is not None:
            await end_task(self._flight)

    def _ask_quietly(self) -> None:
        if asyncio.get_running_loop().time() >= self._quiet_until:
            self._refresh()

    def _refresh(self) -> asyncio.Task[None] | None:
        """Return what fetches the list; None while it is fresh."""
        if asyncio.get_running_loop().time() < self._fresh_until:
            return None
        if self._flight is None:
            self._flight = asyncio.create_task(self._fetch())
            self._flight.add_done_callback(self._land)
        return self._flight

    async def _fetch(self) -> None:
        reply = await self._control.get("/v1/models")
        if reply.status != 200:
            raise read_refusal(reply.status, reply.headers, reply.body, now=self._now(), secret=self._secret)
        models = reply.document().get("data")
        if not isinstance(models, list) or not all(isinstance(model, dict) for model in models):
            raise UpstreamError("The inference server's model list is not a list of models.")
        self._models = models
        self._ids = frozenset(model["id"] for model in models if isinstance(model.get("id"), str))
        lengths = {model.get("id"): model.get("max_model_len") for model in models}
        self._lengths = {name: length for name, length in lengths.items() if name in self._ids and _is_length(length)}
        self._fresh_until = asyncio.get_running_loop().time() + self._fresh_seconds

    def _land(self, flight: asyncio.Task[None]) -> None:
        self._flight = None
        self._quiet_until = asyncio.get_running_loop().time() + _QUIET_SECONDS
        if not flight.cancelled():
            flight.exception()  # every caller may be gone by now, and then nobody else looks at it


def _is_length(value: Any) -> bool:
    return type(value) is int and value > 0
