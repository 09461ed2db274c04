"""What a running gateway consists of, and how it is built."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from litestar.types import ASGIApp
from msgspec import Struct

from gateway.app.access import build_authenticator
from gateway.app.background import build_background
from gateway.app.errors import StartError
from gateway.app.limits import show_limits
from gateway.app.sealing import build_sealer
from gateway.app.storage import build_store
from gateway.app.tools import build_tools
from gateway.app.upstreams import build_upstreams, reconfigure_upstreams
from gateway.config.schema import GatewayConfig
from gateway.engine.background import Background
from gateway.engine.relay import Relay
from gateway.engine.service import Engine
from gateway.engine.standalone import Standalone
from gateway.ports import Authenticator, Clock, Ids, Store, Tools, Upstream
from gateway.protocol.ids import UuidIds
from gateway.storage.faults import StorageNotReady
from gateway.telemetry.exporters import TracingError
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing
from gateway.tools.registry import ToolRegistry
from gateway.transport.background import EventReader
from gateway.transport.bodies import Bodies
from gateway.transport.health import Readiness
from gateway.transport.http import ResponsesEndpoint
from gateway.transport.relay import RelayEndpoint
from gateway.transport.standalone import StandaloneEndpoint
from gateway.transport.websocket import WebSocketEndpoint


class SystemClock:
    """The machine's clocks."""

    now = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


class Parts(Struct, frozen=True, kw_only=True):
    """Everything a running gateway consists of.

    Attributes:
        config: the configuration the other parts were made from.
        authenticator: tells who calls.
        store: durable responses.
        upstreams: inference servers by name.
        tools: what the gateway runs itself.
        engine: makes responses.
        background: makes those that nobody waits for.
        events: streams the events of these.
        endpoint: serves `POST /v1/responses`.
        sockets: serves WebSockets at the same path.
        relay: serves the further paths of inference servers.
        bodies: reads what requests bring beside the hot path.
        standalone: serves questions about conversations.
        readiness: knows whether new requests can be served.
        metrics: what is counted.
        tracing: starts spans.
        clock: tells the time.
        ids: mints ids.
        reconfigure: what takes another configuration, in this order.
    """

    config: GatewayConfig
    authenticator: Authenticator
    store: Store
    upstreams: Mapping[str, Upstream]
    tools: Tools
    engine: Engine
    background: Background
    events: EventReader
    endpoint: ASGIApp
    sockets: WebSocketEndpoint
    relay: RelayEndpoint
    bodies: Bodies
    standalone: StandaloneEndpoint
    readiness: Readiness
    metrics: Metrics
    tracing: Tracing
    clock: Clock
    ids: Ids
    reconfigure: Sequence[Callable[[GatewayConfig], None]] = ()


def build_parts(
    config: GatewayConfig,
    *,
    store: Store | None = None,
    upstreams: Mapping[str, Upstream] | None = None,
    tools: ToolRegistry | None = None,
    engine: Engine | None = None,
    endpoint: ASGIApp | None = None,
    metrics: Metrics | None = None,
    tracing: Tracing | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
) -> Parts:
    """Build every part that is not given from the configuration.

    Raises:
        StartError: a part cannot be built as it is configured.
    """
    metrics = metrics or Metrics()
    store = store or _build_store(config, metrics)
    tracing = tracing or _build_tracing(metrics)
    reconfigure: list[Callable[[GatewayConfig], None]] = [partial(show_limits, metrics)]
    if upstreams is None:
        upstreams = servers = build_upstreams(config, metrics)
        reconfigure.append(lambda changed: reconfigure_upstreams(servers, changed))
    tools = tools or build_tools(config, metrics)
    reconfigure.append(tools.reconfigure)
    show_limits(metrics, config)
    clock = clock or SystemClock()
    ids = ids or UuidIds()
    if engine is None:
        engine = Engine(
            config, store=store, upstreams=upstreams, metrics=metrics, tracing=tracing, clock=clock, ids=ids,
            tools=tools, sealer=build_sealer(config),
        )  # fmt: skip
        # It builds before it takes, so it goes first: what fails changes nothing.
        reconfigure.insert(0, engine.reconfigure)
    background = build_background(config, store, engine, clock, metrics, tracing)
    events = EventReader(background, config, metrics)
    reconfigure += [background.reconfigure, events.reconfigure]
    if endpoint is None:
        endpoint = served = ResponsesEndpoint(engine, background, events, config, metrics)
        reconfigure.append(served.reconfigure)
    authenticator = build_authenticator(config, clock, metrics)
    sockets = WebSocketEndpoint(engine, config, metrics, tracing, authenticator)
    relay = RelayEndpoint(Relay(engine, config, metrics, tracing), engine, config, metrics)
    bodies = Bodies(config)
    questions = Standalone(engine, store, config, metrics, clock, ids)
    standalone = StandaloneEndpoint(questions, engine, config, metrics)
    reconfigure += [sockets.reconfigure, relay.reconfigure, bodies.reconfigure, standalone.reconfigure]
    return Parts(
        config=config, authenticator=authenticator, store=store, upstreams=upstreams, tools=tools, engine=engine,
        background=background, events=events, endpoint=endpoint, sockets=sockets, relay=relay, bodies=bodies,
        standalone=standalone, readiness=Readiness(store, upstreams), metrics=metrics, tracing=tracing, clock=clock,
        ids=ids, reconfigure=reconfigure,
    )  # fmt: skip


def _build_store(config: GatewayConfig, metrics: Metrics) -> Store:
    try:
        return build_store(config.storage, metrics)
    except StorageNotReady as error:
        raise StartError(str(error)) from error


def _build_tracing(metrics: Metrics) -> Tracing:
    try:
        return Tracing.from_environment(os.environ, metrics.count_spans)
    except TracingError as error:
        raise StartError(str(error)) from error
