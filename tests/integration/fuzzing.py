"""WebSockets that are sent anything at all, and what a gateway makes of it."""

import random
import re
import threading
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from harness.engine import says
from harness.frames import CLOSE, TERMINALS, TEXT, Event
from harness.upstream import Upstream
from harness.websocket import ConnectionEnded, WebSocket
from integration.aborts import is_complaint
from integration.mutations import MAX_MESSAGE_BYTES, Sent, draw_breach, draw_message, draw_noise
from integration.turns import told
from integration.watched import Holdings, WatchedGateway

CALLERS = 6
# Whatever the gateway does with a frame, it answers long before any of its timeouts.
PATIENCE_SECONDS = 15.0
# A steady client asks for so little that the rest of the machine is left to the others.
PAUSE_SECONDS = 0.05
MOST_MESSAGES = 40
SETTINGS = {
    "storage.history_cache_bytes": "0",
    "telemetry.log_level": "warning",
    "websocket.max_message_bytes": str(MAX_MESSAGE_BYTES),
}
_ERRORS = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"
_STREAM_ID = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_MEMBERS = {"type", "status", "error", "stream_id", "event_id"}
_CLOSE_CODES = frozenset({1000, 1002, 1007, 1009})


def read_documented_codes() -> frozenset[str]:
    """The codes of errors that the documentation lists."""
    return frozenset(re.findall(r"^\| `(\w+)` \| \d", _ERRORS.read_text(), re.MULTILINE))


# ---------------------------------------------------------------- one answer


class Listener:
    """Judges what one connection says.

    Attributes:
        ends: responses and errors that were told.
        errors: codes of those.
        faults: what should not have been said.
    """

    def __init__(self, codes: frozenset[str]) -> None:
        self.ends = 0
        self.errors: Counter[str] = Counter()
        self.faults: list[str] = []
        self._codes = codes
        self._numbers: dict[str | None, int] = {}

    def hear(self, event: Event) -> None:
        """Take the next event."""
        if event["type"] == "error":
            self._hear_error(event)
        else:
            lane = event.get("stream_id")
            expected = 0 if event["type"] == "response.created" else self._numbers.get(lane, -1) + 1
            if event.get("sequence_number") != expected or not event["type"].startswith("response."):
                self.faults.append(f"not the event {expected} of a lane: {str(event)[:300]}")
            self._numbers[lane] = expected
            if event["type"] == "response.failed":
                self.faults.append(f"a response failed: {str(event)[:300]}")
        self.ends += event["type"] in TERMINALS

    def _hear_error(self, event: Event) -> None:
        error = event.get("error", {})
        words = [error.get("type"), error.get("code"), error.get("message")]
        sound = (
            set(event) <= _MEMBERS
            and isinstance(event.get("status"), int)
            and 400 <= event["status"] < 600
            and all(isinstance(word, str) and word for word in words)
            and isinstance(error.get("param"), str | None)
            and isinstance(event.get("event_id"), str | None)
            and ("stream_id" not in event or _STREAM_ID.fullmatch(event["stream_id"]))
            # Nothing a client sends is a fault of the gateway.
            and error["code"] in self._codes - {"server_error"}
        )
        self.errors[str(error.get("code"))] += 1
        if not sound:
            self.faults.append(f"not an error as documented: {str(event)[:300]}")


# ---------------------------------------------------------------- one connection


@dataclass(frozen=True)
class Visit:
    """What one connection is sent.

    Attributes:
        messages: what it has to live through.
        last: what ends it, if anything does.
        pieces: in how many writes it is sent.
    """

    messages: Sequence[Sent]
    last: Sent | None
    pieces: int

    @classmethod
    def draw(cls, source: random.Random) -> Self:
        """Choose the frames at random."""
        chance = source.random()
        return cls(
            messages=[draw_message(source) for _ in range(source.randint(0, MOST_MESSAGES))],
            last=draw_breach(source) if chance < 0.6 else draw_noise(source) if chance < 0.8 else None,
            pieces=source.randint(1, 4),
        )

    @property
    def sent(self) -> list[Sent]:
        return [*self.messages, self.last] if self.last else [*self.messages]

    def run(self, port: int, listener: Listener) -> int | None:
        """Send everything, read every answer and return the close code of the gateway, if it said Close."""
        with WebSocket(port, timeout=PATIENCE_SECONDS) as connection:
            self._send(connection, b"".join(message.data for message in self.messages))
            self._await_answers(connection, listener)
            if self.last is None:
                connection.close()
                return _read_to_the_end(connection, listener)
            try:
                connection.send_raw(self.last.data)
                if self.last.codes is None:
                    connection.half_close()
            except ConnectionError:  # it has heard enough
                pass
            code = _read_to_the_end(connection, listener)
            if self.last.codes is not None and (code is None or (self.last.codes and code not in self.last.codes)):
                listener.faults.append(f"closed with {code} because of {self.last.kind}: {self.last.data[:100]!r}")
            return code

    def _send(self, connection: WebSocket, data: bytes) -> None:
        step = max(1, -(-len(data) // self.pieces))
        for at in range(0, len(data), step):
            connection.send_raw(data[at : at + step])

    def _await_answers(self, connection: WebSocket, listener: Listener) -> None:
        """Read one answer for each message, and find that there are no more."""
        expected = sum(message.answers for message in self.messages)
        while listener.ends < expected:
            listener.hear(connection.next_event())
        connection.ping(b"any more?")
        connection.await_pong(b"any more?")
        for event in connection.unread:
            listener.hear(event)
        connection.unread.clear()
        if listener.ends > expected:
            listener.faults.append(f"{listener.ends} answers to {expected} messages")


def _read_to_the_end(connection: WebSocket, listener: Listener) -> int | None:
    connection.answers_close = False
    code = None
    try:
        while True:
            frame = connection.next_frame()
            if code is not None:
                listener.faults.append(f"a frame behind Close: {frame.payload[:100]!r}")
            if frame.opcode == TEXT:
                listener.hear(frame.event)
            elif frame.opcode == CLOSE:
                code = frame.close_code or 1005
                frame.reason  # noqa: B018  # must be UTF-8
                connection.half_close()
    except (ConnectionEnded, OSError) as end:
        if isinstance(end, TimeoutError):
            listener.faults.append("the connection was not ended")
    return code


# ---------------------------------------------------------------- the client beside them


class SteadyClient:
    """Asks for one sound response after the other, all the time, on a connection of its own.

    Attributes:
        served: how many it got.
        slowest: seconds that the slowest took.
        fault: what ended it, if anything did.
    """

    def __init__(self, port: int) -> None:
        self.served = 0
        self.slowest = 0.0
        self.fault: str | None = None
        self._port = port
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._ask_on, name="steady-client")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _ask_on(self) -> None:
        try:
            with WebSocket(self._port, timeout=PATIENCE_SECONDS) as connection:
                while not self._done.wait(PAUSE_SECONDS):
                    began = time.monotonic()
                    told(connection, "quick", store=False)
                    self.slowest = max(self.slowest, time.monotonic() - began)
                    self.served += 1
                    connection.frames.clear()
        except Exception as error:
            self.fault = f"a client that did nothing wrong was not served: {error!r}"


# ---------------------------------------------------------------- all of them


@dataclass
class Report:
    """What a campaign found.

    Attributes:
        sent: what was sent, by kind.
        errors: error frames, by code.
        closes: Closes of the gateway, by code; 0 for none.
        served: good creates that were answered meanwhile.
        slowest: seconds that the slowest of them took.
        idle: what the gateway held before.
        resident: MiB of resident memory after so many frames, each time with nothing left to do.
        held: what it still held afterwards and should not, by name.
        broken: everything that should not be.
    """

    sent: Counter[str] = field(default_factory=Counter)
    errors: Counter[str] = field(default_factory=Counter)
    closes: Counter[int] = field(default_factory=Counter)
    connections: int = 0
    served: int = 0
    slowest: float = 0.0
    idle: Holdings | None = None
    resident: dict[int, float] = field(default_factory=dict)
    held: dict[str, float] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rows: dict[str, object] = {"frames and messages": self.sent.total(), "connections": self.connections}
        rows |= {f"sent: {kind}": number for kind, number in sorted(self.sent.items())}
        rows |= {f"error {code}": number for code, number in self.errors.most_common()}
        rows |= {f"Close {code or 'none'}": number for code, number in sorted(self.closes.items())}
        rows |= {"good creates served meanwhile": self.served, "slowest of them, ms": round(self.slowest * 1000)}
        rows |= {f"{name}, beyond idle": f"{number:g}" for name, number in self.held.items()}
        rows |= {f"MiB resident after {number}": f"{value:.1f}" for number, value in self.resident.items()}
        rows["faults"] = len(self.broken)
        return "\n".join(f"{name:<48}{value:>8}" for name, value in rows.items())


class Campaign:
    """Sends a running gateway what nobody should.

    Args:
        gateway: the gateway, running with `SETTINGS`.
        upstream: the inference server behind it.
        marks: after how many frames the gateway is examined; the last is the number of all.
        seed: chooses the frames.
    """

    def __init__(self, gateway: WatchedGateway, upstream: Upstream, marks: Sequence[int], seed: int) -> None:
        self.report = Report()
        self._gateway = gateway
        self._marks = marks
        self._seed = seed
        self._codes = read_documented_codes()
        self._lock = threading.Lock()
        self._numbers = iter(range(1 << 62))
        upstream.otherwise(says("a short answer"))

    def run(self) -> Report:
        """Send as many frames as asked and examine what is left."""
        gateway, report = self._gateway, self.report
        self._probe()
        idle = report.idle = gateway.rest()
        report.resident[0] = gateway.resident_mib
        for mark in self._marks:
            with SteadyClient(gateway.port) as steady, ThreadPoolExecutor(CALLERS) as callers:
                for _ in range(CALLERS):
                    callers.submit(self._send_until, mark)
            report.served += steady.served
            report.slowest = max(report.slowest, steady.slowest)
            report.broken += [steady.fault] if steady.fault else []
            report.held = gateway.settle(idle)
            report.resident[report.sent.total()] = gateway.resident_mib
        self._probe()
        report.broken += [f"{name}: {value:g} more than before" for name, value in report.held.items()]
        report.broken += [line for line in gateway.log.splitlines() if is_complaint(line)]
        return report

    def _probe(self) -> None:
        with WebSocket(self._gateway.port, timeout=PATIENCE_SECONDS) as connection:
            told(connection, "quick")

    def _send_until(self, mark: int) -> None:
        while self.report.sent.total() < mark:
            with self._lock:
                number = next(self._numbers)
            self._visit(number)

    def _visit(self, number: int) -> None:
        visit, listener, code = Visit.draw(random.Random(f"{self._seed} {number}")), Listener(self._codes), None
        try:
            code = visit.run(self._gateway.port, listener)
        except Exception as error:
            asked = sum(sent.answers for sent in visit.messages)
            listener.faults.append(f"{error!r}, {listener.ends} of {asked} answered")
        if code is not None and visit.last is None and code not in _CLOSE_CODES:
            listener.faults.append(f"closed with {code}")
        report = self.report
        with self._lock:
            report.connections += 1
            report.sent.update(sent.kind for sent in visit.sent)
            report.errors += listener.errors
            report.closes[code or 0] += 1
            report.broken += [f"connection {number} of seed {self._seed}: {fault}" for fault in listener.faults]
