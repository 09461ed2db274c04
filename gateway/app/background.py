"""Builds what makes background responses."""

from uuid import uuid4

from gateway.config.schema import GatewayConfig
from gateway.engine.background import Background
from gateway.engine.background_run import BackgroundParts
from gateway.engine.service import Engine
from gateway.ports import Clock, Store
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing


def build_background(
    config: GatewayConfig, store: Store, engine: Engine, clock: Clock, metrics: Metrics, tracing: Tracing
) -> Background:
    """Build what makes background responses, under a name of its own among all processes of the database."""
    parts = BackgroundParts(engine=engine, runs=store.background, clock=clock, metrics=metrics, tracing=tracing)
    return Background(parts, store.leases, config, uuid4().hex)
