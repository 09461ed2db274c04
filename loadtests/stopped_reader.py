"""What a connection that stops reading does to another one: runs with it and without it, by turns."""

import asyncio
import gc
import multiprocessing
import threading
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import combinations
from multiprocessing.connection import Connection
from statistics import mean, median, quantiles
from typing import Self

from harness.upstream import Reply, Request, Upstream
from harness.websocket import WebSocket
from integration.aborts import begin, delta
from integration.watched import WatchedGateway

INTERVAL_SECONDS = 0.005
SETTINGS = {"telemetry.log_level": "warning", "websocket.send_deadline_seconds": "120"}
# Slower than this by chance is taken for slower.
RARE = 0.05
# What a connection that stops reading makes the gateway hold is about as much; it must not stay.
GROWTH_MIB = 4.0
DELTA = "response.output_text.delta"

# ---------------------------------------------------------------- the inference server, in a process of its own


async def keep_time(_: Request, reply: Reply) -> None:
    """Send one delta at each tick, which says when it was due and when it left."""
    await begin(reply)
    due = time.monotonic()
    while True:
        due += INTERVAL_SECONDS
        await asyncio.sleep(due - time.monotonic())
        await reply.send(delta(f"{due:.6f} {time.monotonic():.6f} "))


async def pour(_: Request, reply: Reply) -> None:
    """Send without end, as long as anybody takes it."""
    await begin(reply)
    while True:
        await reply.send(delta("x" * 16384))
        await asyncio.sleep(0.002)


def serve(channel: Connection) -> None:
    """Serve both until the channel closes."""
    gc.disable()
    with Upstream() as upstream:
        upstream.script("in time", keep_time)
        upstream.script("without end", pour)
        channel.send(upstream.port)
        channel.poll(None)


class UpstreamProcess:
    """The inference server; use it as a context manager. Its work must not delay the clock of the client."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._channel, remote = context.Pipe()
        self._process = context.Process(target=serve, args=(remote,), daemon=True)
        self.url = ""

    def __enter__(self) -> Self:
        self._process.start()
        self.url = f"http://127.0.0.1:{self._channel.recv()}"
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.send(None)
        self._process.join(10)


# ---------------------------------------------------------------- one run


@dataclass(frozen=True)
class Run:
    """What one run measured.

    Attributes:
        beside: whether another connection did not read.
        lateness: milliseconds from the moment each delta was due to its arrival.
        relaying: milliseconds from the moment it left the inference server.
        resident: the most resident memory of the gateway, in MiB.
        queued: bytes that waited for clients at the end, in MiB.
    """

    beside: bool
    lateness: list[float]
    relaying: list[float]
    resident: float
    queued: float

    @property
    def p99(self) -> float:
        return percentile(self.lateness, 99)

    def __str__(self) -> str:
        late = f"{percentile(self.lateness, 50):>9.2f}{self.p99:>9.2f}{max(self.lateness):>9.2f}"
        relayed = f"{percentile(self.relaying, 50):>9.2f}{percentile(self.relaying, 99):>9.2f}"
        name = "with a stopped reader" if self.beside else "without"
        return f"{name:<24}{len(self.lateness):>7}{late}{relayed}{self.resident:>9.1f}{self.queued:>9.2f}"


HEADING = f"{'run':<24}{'deltas':>7}" + "".join(
    f"{name:>9}" for name in ("late p50", "p99", "max", "relay p50", "p99", "MiB", "queued")
)


def measure(gateway: WatchedGateway, seconds: float, *, beside: bool) -> Run:
    """Read a stream for so long, perhaps beside a connection that does not read its own."""
    lateness, relaying = [], []
    with ExitStack() as connections:
        healthy = connections.enter_context(WebSocket(gateway.port))
        healthy.create("in time", store=False)
        while healthy.next_event()["type"] != DELTA:
            pass
        watch = connections.enter_context(Watch(gateway))
        if beside:
            stopped = connections.enter_context(WebSocket(gateway.port, receive_buffer=4096))
            stopped.create("without end", store=False)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            event = healthy.next_event()
            arrived = healthy.frames.pop().at
            if event["type"] == DELTA:
                due, left = event["delta"].split()
                lateness.append((arrived - float(due)) * 1000)
                relaying.append((arrived - float(left)) * 1000)
        queued = gateway.count("gateway_delivery_queue_bytes") / (1 << 20)
    while gateway.count("gateway_active_responses"):
        time.sleep(0.1)
    return Run(beside, lateness, relaying, watch.most, queued)


class Watch:
    """Looks at the memory of a gateway while it serves.

    Attributes:
        most: MiB of resident memory it had at most.
    """

    def __init__(self, gateway: WatchedGateway) -> None:
        self.most = 0.0
        self._gateway = gateway
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._done.wait(0.25):
            self.most = max(self.most, self._gateway.resident_mib)


# ---------------------------------------------------------------- all runs


def judge(runs: list[Run]) -> tuple[str, bool]:
    """Compare both kinds; return the words, and whether those with it are slower or leave memory behind."""
    without = [run.p99 for run in runs if not run.beside]
    beside = [run.p99 for run in runs if run.beside]
    above = sum(value > max(without) for value in beside)
    chance = by_chance(without, beside)
    words = [
        f"p99 without: {min(without):.2f} to {max(without):.2f} ms, median {median(without):.2f}",
        f"p99 with:    {min(beside):.2f} to {max(beside):.2f} ms, median {median(beside):.2f}",
        f"{len(beside) - above} of {len(beside)} runs with it are within the spread of those without it",
        f"as high a rank of those with it comes by chance in {chance:.0%} of all cases",
        "MiB resident at most: {:.1f} without, {:.1f} with".format(
            *(max(run.resident for run in runs if run.beside is kind) for kind in (False, True))
        ),
    ]
    plain = [run.resident for run in runs if not run.beside]
    grown = plain[-1] - plain[0]
    words.append(f"MiB resident grown from the first run without it to the last: {grown:.1f}")
    return "\n".join(words), chance < RARE or grown > GROWTH_MIB


def by_chance(without: list[float], beside: list[float]) -> float:
    """How often as many of all the values, drawn at random, rank as high as these: the exact rank-sum test."""
    everything = sorted([*without, *beside])
    ranks = [mean(place for place, other in enumerate(everything) if other == value) for value in everything]
    seen = sum(ranks[everything.index(value)] for value in beside)
    draws = [sum(draw) for draw in combinations(ranks, len(beside))]
    return sum(draw >= seen for draw in draws) / len(draws)


def percentile(values: list[float], number: int) -> float:
    return quantiles(values, n=100, method="inclusive")[number - 1]
