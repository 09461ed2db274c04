"""WebSockets that end at random moments, in every way a client can, and what the gateway still holds afterwards."""

import json
import random
import socket
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from harness.client import RESPONSES
from harness.engine import says
from harness.frames import TERMINALS, TEXT, encode_frame
from harness.upstream import Upstream
from harness.websocket import ConnectionEnded, WebSocket
from integration.aborts import PATIENCE_SECONDS, Report, flood, flow, is_complaint, stall
from integration.turns import told
from integration.watched import WatchedGateway

CALLERS = 16
# The queue to a client that does not read fills soon, and thousands of access lines would say nothing.
SETTINGS = {
    "storage.history_cache_bytes": "0",
    "telemetry.log_level": "warning",
    "websocket.delivery_max_bytes": "256KiB",
}
MOMENTS = {
    "in the handshake": 1,
    "before any message": 1,
    "in a frame": 1,
    "between fragments": 1,
    "behind a create": 3,
    "before the answer": 1,
    "in the answer": 3,
    "at the terminal event": 3,
    "after not reading": 1,
}
_MODELS = {"before the answer": "stall", "in the answer": "flow", "after not reading": "flood"}
_LANES: tuple[tuple[str | None, ...], ...] = ((None,), ("a",), (None, "a", "b"), ("a", "a", "a", "b"))


def say_close_and_wait(connection: WebSocket) -> bool:
    """Tell whether the gateway ends the connection once Close was said."""
    connection.close(1000, "enough")
    return _is_ended(connection)


def half_close_and_wait(connection: WebSocket) -> bool:
    """Tell whether the gateway ends a connection on which nothing more will come."""
    connection.half_close()
    return _is_ended(connection)


def say_close_and_leave(connection: WebSocket) -> bool:
    connection.close(1001)
    connection.leave()
    return True


def leave(connection: WebSocket) -> bool:
    connection.leave()
    return True


def reset(connection: WebSocket) -> bool:
    connection.reset()
    return True


WAYS: tuple[Callable[[WebSocket], bool], ...] = (
    say_close_and_wait,
    say_close_and_leave,
    half_close_and_wait,
    leave,
    reset,
)


@dataclass(frozen=True)
class Visit:
    """One connection that does something and ends.

    Attributes:
        moment: when it ends, one of `MOMENTS`.
        way: how it ends, one of `WAYS`.
        lanes: those of its creates, in order.
        store: whether the responses would be stored.
        seconds: how long it waits there first.
        share: how much of a message it sends, or of 40 events it reads.
        parent: the response its creates continue, if any.
    """

    moment: str
    way: Callable[[WebSocket], bool]
    lanes: Sequence[str | None]
    store: bool
    seconds: float
    share: float
    parent: str | None

    @classmethod
    def draw(cls, source: random.Random, parent: str) -> Self:
        """Choose one at random."""
        (moment,) = source.choices(list(MOMENTS), list(MOMENTS.values()))
        # Half a frame would swallow Close.
        ways = [way for way in WAYS if moment != "in a frame" or way is not say_close_and_wait]
        return cls(
            moment=moment,
            way=source.choice(ways),
            lanes=source.choice(_LANES),
            store=source.random() < 0.5,
            seconds=source.choice((0.0, 0.0, 0.01, 0.05)) * source.random(),
            share=source.random(),
            parent=source.choice((None, parent)),
        )

    @property
    def model(self) -> str:
        """What the inference server does."""
        return _MODELS.get(self.moment, "quick")

    def run(self, port: int) -> bool:
        """Connect, do it and leave; tell whether the gateway let go of the connection."""
        if self.moment == "in the handshake":
            return self._break_off_the_handshake(port)
        small = 4096 if self.moment == "after not reading" else None
        with WebSocket(port, timeout=PATIENCE_SECONDS, receive_buffer=small) as connection:
            try:
                self._act(connection)
                time.sleep(self.seconds)
                return self.way(connection)
            except (ConnectionEnded, ConnectionError):
                return True

    def _act(self, connection: WebSocket) -> None:
        if self.moment == "before any message":
            return
        if self.moment in ("in a frame", "between fragments"):
            text = json.dumps(self._create(None)).encode()
            whole = self.moment == "between fragments"
            frame = encode_frame(TEXT, text, final=not whole, mask=b"mask")
            connection.send_raw(frame if whole else frame[: int(len(frame) * self.share)])
            return
        for lane in self.lanes:
            connection.send(self._create(lane))
        if self.moment == "in the answer":
            for _ in range(round(40 * self.share)):
                connection.next_event()
        elif self.moment == "at the terminal event":
            for _ in range(1 + int(self.share * len(self.lanes))):
                while connection.next_event()["type"] not in TERMINALS:
                    pass

    def _create(self, lane: str | None) -> dict[str, object]:
        fields: dict[str, object] = {"type": "response.create", "model": self.model, "input": "hello " * 200}
        fields["store"] = self.store
        if lane is not None:
            fields["stream_id"] = lane
        if self.parent is not None:
            fields["previous_response_id"] = self.parent
        return fields

    def _break_off_the_handshake(self, port: int) -> bool:
        head = f"GET {RESPONSES} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        head += "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        with socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS) as connection:
            # As likely as not it is whole, and nobody waits for the answer.
            connection.sendall(head[: int(len(head) * 2 * self.share)].encode())
            time.sleep(self.seconds)
        return True


def _is_ended(connection: WebSocket) -> bool:
    """Read to the end, for a bounded time."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    with suppress(TimeoutError):
        while time.monotonic() < deadline:
            connection.next_frame(deadline - time.monotonic())
    return False


class Campaign:
    """Opens WebSockets to a running gateway and abandons them.

    Args:
        gateway: the gateway, running with `SETTINGS`.
        upstream: the inference server behind it.
        marks: after how many connections the gateway is examined; the last is the number of all.
        seed: chooses the moments.
    """

    def __init__(self, gateway: WatchedGateway, upstream: Upstream, marks: Sequence[int], seed: int) -> None:
        self.report = Report()
        self._gateway = gateway
        self._marks = marks
        self._seed = seed
        for model, script in {"quick": says("a short answer"), "stall": stall, "flow": flow, "flood": flood}.items():
            upstream.script(model, script)

    def run(self) -> Report:
        """Abandon as many connections as asked and examine what is left."""
        gateway, report = self._gateway, self.report
        parent = self._continue(None)
        idle = report.idle = gateway.rest()
        report.resident[0] = gateway.resident_mib
        done = 0
        with ThreadPoolExecutor(CALLERS) as callers:
            for mark in self._marks:
                drawn = [Visit.draw(random.Random(f"{self._seed} {number}"), parent) for number in range(done, mark)]
                report.hung += list(callers.map(lambda visit: visit.run(gateway.port), drawn)).count(False)
                report.aborts.update(visit.moment for visit in drawn)
                report.held = gateway.settle(idle)
                report.resident[mark] = gateway.resident_mib
                done = mark
        report.served = self._continue(parent) != parent
        report.complaints = [line for line in gateway.log.splitlines() if is_complaint(line)]
        return report

    def _continue(self, parent: str | None) -> str:
        with WebSocket(self._gateway.port, timeout=PATIENCE_SECONDS) as connection:
            return told(connection, "quick", parent=parent)
