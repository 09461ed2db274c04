"""How long a create waits for a lane that has just become free.

On a machine that others use too, most of the longest waits are waits for a processor. The kernel counts those, so the
creates during which neither the gateway nor this process had to wait are told apart.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles

from harness.engine import Answer, says
from harness.frames import TERMINALS
from harness.processes import Process
from harness.upstream import Reply, Request, Upstream
from harness.websocket import WebSocket

# So long a lane is left alone before it counts as idle.
REST_SECONDS = 0.005
BLOCK = 100
IDLE, ON_SIGHT, QUEUED = "on an idle lane", "at the sight of the terminal", "sent before the terminal"
CREATED = "response.created"


# Every wake-up waits for a little while; so much in sum is more than those.
DISTURBED_SECONDS = 0.0005


@dataclass(frozen=True)
class Wait:
    """What one create had to wait for, in milliseconds from the moment from which it could begin.

    Attributes:
        to_call: until the inference server was called.
        to_created: until `response.created` came.
        undisturbed: whether no process had to wait for a processor.
    """

    to_call: float
    to_created: float
    undisturbed: bool


@dataclass(frozen=True)
class Moments:
    """One create as the client saw it: monotonic seconds, and how long processes have waited for a processor."""

    free: float
    created: float
    stolen: float


class Handoffs:
    """Sends creates to one lane of one connection, in three ways by turns.

    Args:
        gateway: the gateway.
        upstream: the inference server behind it, in this process.
    """

    def __init__(self, gateway: Process, upstream: Upstream) -> None:
        self.waits: dict[str, list[Wait]] = {IDLE: [], ON_SIGHT: [], QUEUED: []}
        self._answer: Answer = says("well")
        self._called: list[float] = []
        self._model = upstream.script("handoff", self._serve)
        self._gateway = gateway
        self._upstream = upstream
        self._socket: WebSocket

    def run(self, count: int) -> None:
        """Measure so many creates of each kind."""
        kinds: dict[str, Callable[[int], Iterable[Moments]]] = {
            IDLE: self._ask_idle,
            ON_SIGHT: self._follow,
            QUEUED: self._queue,
        }
        with WebSocket(self._gateway.port) as self._socket:
            list(self._follow(20))  # the first ones open connections
            for begin in range(0, count, BLOCK):
                number = min(BLOCK, count - begin)
                for kind, ask in kinds.items():
                    self._socket.frames.clear()
                    self._called.clear()
                    self._upstream.requests.clear()
                    seen = list(ask(number))
                    # A create that the others follow has a call too, the first.
                    self.waits[kind] += map(_judge, seen, self._called[-number:])

    def _ask_idle(self, number: int) -> Iterator[Moments]:
        for _ in range(number):
            time.sleep(REST_SECONDS)
            before = self._read_stolen()
            free, created = self._send(), self._await(CREATED)
            yield Moments(free, created, self._read_stolen() - before)
            self._await(*TERMINALS)

    def _follow(self, number: int) -> Iterator[Moments]:
        self._send()
        self._await(CREATED)
        for _ in range(number):
            before = self._read_stolen()
            self._await(*TERMINALS)
            free, created = self._send(), self._await(CREATED)
            yield Moments(free, created, self._read_stolen() - before)
        self._await(*TERMINALS)

    def _queue(self, number: int) -> Iterator[Moments]:
        self._send()
        self._await(CREATED)
        for _ in range(number):
            before = self._read_stolen()
            self._send()
            free, created = self._await(*TERMINALS), self._await(CREATED)
            yield Moments(free, created, self._read_stolen() - before)
        self._await(*TERMINALS)

    def _send(self) -> float:
        now = time.monotonic()
        self._socket.create(self._model, store=False)
        return now

    def _await(self, *types: str) -> float:
        """Read up to an event of one of these types and return when it came."""
        while (event := self._socket.next_event())["type"] not in types:
            assert event["type"] != "error", event
        assert event["type"] not in ("error", "response.failed"), event
        return self._socket.frames[-1].at

    def _read_stolen(self) -> float:
        """Return for how many seconds the gateway's loop and the threads of this process have waited to run."""
        files = [Path(f"/proc/{self._gateway.pid}/schedstat"), *Path("/proc/self/task").glob("*/schedstat")]
        return sum(int(file.read_text().split()[1]) for file in files) / 1e9

    async def _serve(self, request: Request, reply: Reply) -> None:
        self._called.append(time.monotonic())
        await self._answer(request, reply)


def _judge(seen: Moments, called: float) -> Wait:
    return Wait(
        to_call=(called - seen.free) * 1000,
        to_created=(seen.created - seen.free) * 1000,
        undisturbed=seen.stolen < DISTURBED_SECONDS,
    )


def describe(values: list[float]) -> str:
    """Median, 99th percentile and maximum."""
    cuts = quantiles(values, n=100, method="inclusive")
    return f"{cuts[49]:>9.2f}{cuts[98]:>9.2f}{max(values):>9.2f}"


def report(waits: dict[str, list[Wait]]) -> str:
    """A table of all kinds, in milliseconds."""
    names = ("creates", "call p50", "p99", "max", "made p50", "p99", "max")
    rows = [f"{'ms':<44}" + "".join(f"{name:>9}" for name in names)]
    for kind, all_of_them in waits.items():
        for which, chosen in (("all", all_of_them), ("undisturbed", undisturbed(all_of_them))):
            calls, created = describe([wait.to_call for wait in chosen]), describe([wait.to_created for wait in chosen])
            rows.append(f"{f'{kind}, {which}':<44}{len(chosen):>9}{calls}{created}")
    return "\n".join(rows)


def undisturbed(waits: list[Wait]) -> list[Wait]:
    """Those during which no process had to wait for a processor."""
    return [wait for wait in waits if wait.undisturbed]
