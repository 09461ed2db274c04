"""Clients that leave at random moments, in every way a client can, and what the gateway still holds afterwards."""

import asyncio
import json
import random
import socket
import struct
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from harness.client import create
from harness.engine import frame, says
from harness.upstream import Reply, Request, Upstream
from integration.watched import GAUGES, Holdings, WatchedGateway

CALLERS = 16
# A half-closed connection must be ended by the gateway, long before any of its timeouts.
PATIENCE_SECONDS = 10.0
# The queue to a client that does not read fills soon, and thousands of access lines would say nothing. Histories in
# memory grow up to a bound of their own, which would hide a growth that has none.
SETTINGS = {
    "server.delivery_max_bytes": "256KiB",
    "storage.history_cache_bytes": "0",
    "telemetry.log_level": "warning",
}
MOMENTS = (
    "before the body",
    "in the body",
    "before the answer",
    "in the answer",
    "at the terminal event",
    "after not reading",
)
WAYS = ("close", "reset", "half-close")
_RESET = struct.pack("ii", 1, 0)
_PLACE = {"item_id": "msg_engine", "output_index": 0, "content_index": 0}

# ---------------------------------------------------------------- the inference server


async def stall(request: Request, reply: Reply) -> None:
    """Accept the call and never answer."""
    await asyncio.sleep(600)


async def flow(request: Request, reply: Reply) -> None:
    """Stream small deltas without end; of a JSON answer half of the body."""
    if not request.body.get("stream"):
        body = json.dumps(says("half").response).encode()
        await reply.head(200, "application/json", len(body))
        await reply.send(body[: len(body) // 2])
        await asyncio.sleep(600)
    await begin(reply)
    while True:
        await reply.send(delta("more "))
        await asyncio.sleep(0.005)


async def flood(request: Request, reply: Reply) -> None:
    """Stream more than a client that does not read can take, then fall silent."""
    await begin(reply)
    for _ in range(64):
        await reply.send(delta("x" * 16384))
    await asyncio.sleep(600)


async def begin(reply: Reply) -> None:
    """Send a stream's head and everything before its first delta."""
    *opening, _, _, _, _ = says("").events()
    await reply.head()
    await reply.send(b"".join(frame(event) for event in opening))


def delta(text: str) -> bytes:
    """One text delta, encoded."""
    return frame({"type": "response.output_text.delta", **_PLACE, "delta": text, "logprobs": []})


# ---------------------------------------------------------------- one client that leaves


@dataclass(frozen=True)
class Abort:
    """One request that is not waited for.

    Attributes:
        moment: when the client leaves, one of `MOMENTS`.
        way: how it leaves, one of `WAYS`.
        stream: whether it asks for a stream.
        store: whether the response would be stored.
        seconds: how long it waits there first.
        share: how much of the body it sends, or of 4 KiB of the answer it reads.
        parent: the response it continues from, if any.
    """

    moment: str
    way: str
    stream: bool
    store: bool
    seconds: float
    share: float
    parent: str | None

    @classmethod
    def draw(cls, source: random.Random, parent: str) -> "Abort":
        """Choose one at random."""
        moment = source.choice(MOMENTS)
        return cls(
            moment=moment,
            way=source.choice(WAYS),
            stream=moment == "after not reading" or source.random() < 0.7,
            store=source.random() < 0.5,
            seconds=source.choice((0.0, 0.0, 0.01, 0.05)) * source.random(),
            share=source.random(),
            parent=source.choice((None, parent)),
        )

    @property
    def model(self) -> str:
        """What the inference server does."""
        if self.moment == "before the answer":
            return "stall"
        if self.moment == "in the answer":
            return "flow"
        return "flood" if self.moment == "after not reading" else "quick"

    def run(self, port: int) -> bool:
        """Send the request and leave; tell whether the gateway let go of the connection."""
        with socket.socket() as connection:
            connection.settimeout(PATIENCE_SECONDS)
            if self.moment == "after not reading":
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.connect(("127.0.0.1", port))
            try:
                self._ask(connection, port)
                time.sleep(self.seconds)
            except ConnectionError:
                return True
            return self._leave(connection)

    def _ask(self, connection: socket.socket, port: int) -> None:
        body = {"model": self.model, "input": "hello " * 200, "stream": self.stream, "store": self.store}
        if self.parent is not None:
            body["previous_response_id"] = self.parent
        payload = json.dumps(body).encode()
        sent = {"before the body": 0, "in the body": int(len(payload) * self.share)}.get(self.moment, len(payload))
        head = f"POST /v1/responses HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(payload)}\r\n\r\n".encode() + payload[:sent])
        if self.moment == "in the answer" and self.stream:
            read_on(connection, lambda seen: len(seen) > 4096 * self.share)
        elif self.moment == "at the terminal event":
            read_on(connection, lambda seen: (b"response.completed" if self.stream else b"HTTP/1.1 200") in seen)

    def _leave(self, connection: socket.socket) -> bool:
        if self.way == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        if self.way != "half-close":
            return True
        try:
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(65536):
                pass
        except TimeoutError:
            return False
        except OSError:
            return True
        return True


def read_on(connection: socket.socket, enough: Callable[[bytes], bool]) -> None:
    """Read until it is enough, or the peer closes."""
    seen = b""
    while not enough(seen) and (piece := connection.recv(1024)):
        seen += piece


# ---------------------------------------------------------------- ten thousand of them


@dataclass
class Report:
    """What a campaign found.

    Attributes:
        aborts: how many clients left, by moment.
        idle: what the gateway held before.
        resident: MiB of resident memory after so many aborts, each time with nothing left to do.
        held: what it still held afterwards and should not, by name.
        hung: half-closed connections the gateway did not end.
        complaints: lines of its log above the level of a warning, and tracebacks.
        served: whether a request after all that was answered.
    """

    aborts: Counter[str] = field(default_factory=Counter)
    idle: Holdings | None = None
    resident: dict[int, float] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    hung: int = 0
    complaints: list[str] = field(default_factory=list)
    served: bool = False

    @property
    def broken(self) -> list[str]:
        """Everything that should not be."""
        found = [f"{name}: {value:g} more than before" for name, value in self.held.items()]
        found += [f"{self.hung} half-closed connections were left open"] if self.hung else []
        found += [] if self.served else ["the next request was not answered"]
        return found + self.complaints

    def __str__(self) -> str:
        rows = {f"left {moment}": str(number) for moment, number in sorted(self.aborts.items())}
        rows["left in all"] = str(self.aborts.total())
        held = {"tasks": "tasks", "descriptors": "descriptors", "upstream calls": "upstream calls"}
        held |= {name: name.removeprefix("gateway_").replace("_", " ") for name in GAUGES}
        rows |= {f"{words}, beyond idle": f"{self.held.get(name, 0):g}" for name, words in held.items()}
        rows["half-closed and left open"] = str(self.hung)
        rows["complaints in the log"] = str(len(self.complaints))
        rows |= {f"MiB resident after {number}": f"{value:.1f}" for number, value in self.resident.items()}
        return "\n".join(f"{name:<48}{value:>8}" for name, value in rows.items())


class Campaign:
    """Sends requests to a running gateway and abandons them.

    Args:
        gateway: the gateway, running with `SETTINGS`.
        upstream: the inference server behind it.
        marks: after how many aborts the gateway is examined; the last is the number of all.
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
        """Abandon as many requests as asked and examine what is left."""
        gateway, report = self._gateway, self.report
        parent = create(gateway.port, {"model": "quick", "input": "hi"}).json["id"]
        create(gateway.port, {"model": "quick", "input": "go on", "previous_response_id": parent, "stream": True})
        idle = report.idle = gateway.rest()
        report.resident[0] = gateway.resident_mib
        done = 0
        with ThreadPoolExecutor(CALLERS) as callers:
            for mark in self._marks:
                drawn = [Abort.draw(random.Random(f"{self._seed} {number}"), parent) for number in range(done, mark)]
                report.hung += list(callers.map(lambda abort: abort.run(gateway.port), drawn)).count(False)
                report.aborts.update(abort.moment for abort in drawn)
                report.held = gateway.settle(idle)
                report.resident[mark] = gateway.resident_mib
                done = mark
        last = create(gateway.port, {"model": "quick", "input": "go on", "previous_response_id": parent})
        report.served = last.status == 200
        report.complaints = [line for line in gateway.log.splitlines() if is_complaint(line)]
        return report


def is_complaint(line: str) -> bool:
    """Tell a line of the log that nobody expects when clients leave."""
    return "Traceback" in line or '"level":"error"' in line or '"level":"critical"' in line
