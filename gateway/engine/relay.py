"""Calls that pass through: further paths of the inference servers, to the byte."""

import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from gateway.config.schema import GatewayConfig
from gateway.engine.deadline import Deadline
from gateway.engine.failures import name_outcome, shutting_down
from gateway.engine.routing import Route, Routing
from gateway.engine.service import Engine
from gateway.ports import RelayedAnswer, RelayedCall
from gateway.protocol import codec
from gateway.protocol.errors import GatewayError, UpstreamError
from gateway.telemetry import names
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Span, Tracing

# What tells about the body, and about the answer that can be used: both are passed on untouched.
_ENTITY_HEADERS: Final = frozenset({b"content-type", b"content-encoding", b"accept", b"accept-encoding"})


class Relay:
    """Passes calls on under the rules of responses: routing by model, seats, deadlines, spans, cancellation.

    Args:
        engine: knows where models go.
        config: the longest time a call may take.
        metrics: what is counted.
        tracing: spans of the calls.
    """

    def __init__(self, engine: Engine, config: GatewayConfig, metrics: Metrics, tracing: Tracing) -> None:
        self._engine = engine
        self._metrics = metrics
        self._tracing = tracing
        self._deadlines: set[Deadline] = set()
        self.reconfigure(config)

    def reconfigure(self, config: GatewayConfig) -> None:
        """Use another configuration for every call that begins from now on."""
        self._deadline_seconds = config.engine.run_deadline_seconds

    def cut_off(self) -> int:
        """End every call, at once; returns how many there were."""
        for deadline in self._deadlines:
            deadline.cut_off(shutting_down())
        return len(self._deadlines)

    @asynccontextmanager
    async def open(
        self, path: str, query: str, body: bytes, headers: Iterable[tuple[bytes, bytes]]
    ) -> AsyncIterator[RelayedAnswer]:
        """Pass a call on and give its answer, which ends with the block; leaving the block early aborts the call.

        Args:
            path: one of those listed in `[upstream] passthrough`.
            query: the query of the URL, without its question mark.
            body: the request's body.
            headers: the request's headers, of which the few that are passed on are picked.

        Raises:
            NotFound: no inference server takes the model at this path.
            Unavailable: no seat became free in time, or the gateway ends.
            GatewayError: the inference server gives no answer, or breaks it off.
        """
        route, body = _route(self._engine.routing, path, body)
        deadline = Deadline(self._deadline_seconds)
        self._deadlines.add(deadline)
        try:
            with deadline, await route.seats.take(), self._tracing.start_relay(path) as span:
                picked = route.pick_headers(headers) | _pick_entity(headers)
                call = RelayedCall(
                    target=f"{path}?{query}" if query else path, body=body, headers={**picked, **span.headers}
                )
                answer = await self._send(route, call)
                try:
                    if span.recording:
                        _describe(span, route, path, answer)
                    yield answer
                except UpstreamError as error:
                    error.message = route.upstream.redact(error.message)
                    raise
                finally:
                    await answer.close()
        finally:
            self._deadlines.discard(deadline)

    async def _send(self, route: Route, call: RelayedCall) -> RelayedAnswer:
        began, status = time.perf_counter(), "cancelled"
        try:
            answer = await route.upstream.relay(call)
        except GatewayError as error:
            status = name_outcome(error)
            raise
        else:
            status = str(answer.status)
            return answer
        finally:
            metrics = self._metrics
            metrics.defer(metrics.upstream_requests_total.labels(status))
            metrics.defer(metrics.upstream_ttfb_seconds, time.perf_counter() - began)


def _route(routing: Routing, path: str, body: bytes) -> tuple[Route, bytes]:
    """Return where a body goes, and the body; it is looked into only where the model decides anything."""
    if not routing.by_model:
        return routing.choose_for(path, None), body
    model = _read_model(body)
    route = routing.choose_for(path, model)
    if model is None or route.model == model:
        return route, body
    return route, codec.replace_member(body, "model", route.model)


def _read_model(body: bytes) -> str | None:
    """Return the model a body names; what is no JSON, such as a form, names none that is looked for."""
    try:
        members = codec.decode(body)
    except ValueError:
        return None
    model = members.get("model") if isinstance(members, dict) else None
    return model if isinstance(model, str) and model else None


def _pick_entity(headers: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers if name in _ENTITY_HEADERS}


def _describe(span: Span, route: Route, path: str, answer: RelayedAnswer) -> None:
    address, port = route.upstream.address
    span.annotate(
        {
            names.ATTR_HTTP_METHOD: "POST",
            names.ATTR_URL_PATH: path,
            names.ATTR_HTTP_STATUS: answer.status,
            names.ATTR_PROVIDER: route.upstream.dialect.name,
            names.ATTR_SERVER_ADDRESS: address,
            names.ATTR_SERVER_PORT: port,
            names.ATTR_REQUEST_MODEL: route.model or None,
        }
    )
    if answer.status >= 500:
        span.fail(str(answer.status))
