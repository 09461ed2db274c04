"""A session by itself, and what goes into it."""

from contextlib import contextmanager

import pytest
from msgspec import structs

from gateway.config.schema import WebSocketConfig
from gateway.engine.session import Checkpoint, Session
from gateway.ports import StoredItem
from gateway.telemetry.metrics import Metrics

BOUNDS = WebSocketConfig(
    max_checkpoint_bytes=100, max_checkpoint_items=3, max_session_bytes=250, evict_parent_on_failure="same_lane"
)


def checkpoint(response_id, *sizes, stored=False):
    items = [StoredItem(role="input", type="message", id="msg_1", data=b"x" * size) for size in sizes or (10,)]
    return Checkpoint(response_id, items, stored=stored)


def leave(continuation, end):
    """End a create by an exception, which it passes on."""
    with pytest.raises(end if isinstance(end, type) else type(end)), continuation:
        raise end


class Memory:
    """A session and what is measured of it."""

    def __init__(self, **bounds):
        self.metrics = Metrics()
        self.session = Session(structs.replace(BOUNDS, **bounds), self.metrics)

    def remember(self, lane, response_id, *sizes, stored=False, parent=None):
        with self.session.begin(lane, parent) as continuation:
            continuation.prepare(checkpoint(response_id, *sizes, stored=stored))
            continuation.publish()

    @contextmanager
    def failing(self, lane, parent):
        with self.session.begin(lane, parent) as continuation:
            yield continuation

    def sample(self, name, **labels):
        return self.metrics.registry.get_sample_value(f"gateway_{name}", labels)

    def outcomes(self):
        names = ("kept", "too_large", "evicted")
        return tuple(self.sample("websocket_checkpoints_total", outcome=name) or 0 for name in names)
