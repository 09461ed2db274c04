"""An inference server that plays a script for each agent of a run: what its first, second, third, ... inference says.

The agent is read from the identity marker in the instructions, as a real model would read it. Every call is logged.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from engine.doubles import Plain, Reply, refusal, settle
from harness.engine import Answer, Event, frame, reasoning
from harness.engine import call as call_item
from harness.engine import message as message_item

from gateway.ports import UpstreamCall, UpstreamHealth
from gateway.protocol.compaction_prompt import REQUEST
from gateway.protocol.errors import UpstreamError

Json = dict[str, Any]

MARKER = re.compile(r"You are agent `([^`]*)`")
# Whose script a call plays that is no agent's: a response without agents.
PLAIN = ""


class Gate(asyncio.Event):
    """Holds an inference until a test opens it; `reached` is set once one has come to it."""

    def __init__(self) -> None:
        super().__init__()
        self.reached = asyncio.Event()

    async def wait(self) -> bool:  # type: ignore[override]
        self.reached.set()
        return await super().wait()


class _Sleep(asyncio.Event):
    """Is over after some time."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def wait(self) -> bool:  # type: ignore[override]
        await asyncio.sleep(self._seconds)
        return True


# ---------------------------------------------------------------- what an inference says, piece by piece


@dataclass(frozen=True)
class Hold:
    """The inference is held here until the test opens the gate of this name."""

    name: str


@dataclass(frozen=True)
class Pause:
    """The inference takes so many seconds longer."""

    seconds: float


@dataclass(frozen=True)
class Fail:
    """The call is refused with this status; behind other pieces, the answer breaks off."""

    status: int


@dataclass(frozen=True)
class Cut:
    """The answer ends early: with the reason of a length limit, or, for `connection`, without an end."""

    reason: str


@dataclass(frozen=True)
class Spend:
    """The tokens that the inference counts, read and written."""

    read: int
    written: int


@dataclass(frozen=True)
class Said:
    """One output item as the engine words it, and the pieces in which it comes: texts, and gates in between."""

    item: Event
    pieces: tuple[str | Hold, ...]


Step = Hold | Pause | Fail | Cut | Spend | Said
Turn = Sequence[Step]


def gate(name: str) -> Hold:
    """Hold the inference here, or a message in the middle, until the test opens this gate."""
    return Hold(name)


def fail(status: int = 500) -> Fail:
    """Refuse the call, or break the answer off behind other pieces."""
    return Fail(status)


def cut(reason: str = "max_output_tokens") -> Cut:
    """End the answer early; `connection` breaks it off."""
    return Cut(reason)


def spend(read: int, written: int) -> Spend:
    """Count these tokens."""
    return Spend(read, written)


def say(*pieces: str | Hold) -> Said:
    """A message, in these pieces."""
    return Said(message_item("".join(piece for piece in pieces if isinstance(piece, str))), pieces)


def think(text: str) -> Said:
    """A reasoning item."""
    return Said(reasoning(text), (text,))


def call(name: str, arguments: Json | str = "{}", *, id: str = "") -> Said:
    """A call of a tool or an action; arguments in words of the model's own as a text. Without an id it gets one."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return Said(call_item(name, text, id), (text,))


def spawn(name: str, task: str = "Do it.", **more: Any) -> Said:
    """A call that makes a child; `fork_turns` and `id` by name."""
    made = more.pop("id", "")
    return call("spawn_agent", {"task_name": name, "message": task, **more}, id=made)


def send(target: str, message: str, **more: Any) -> Said:
    """A call that leaves a message."""
    return call("send_message", {"target": target, "message": message}, **more)


def follow(target: str, message: str, **more: Any) -> Said:
    """A call that gives new work."""
    return call("followup_task", {"target": target, "message": message}, **more)


def wait(timeout_ms: int | None = None, **more: Any) -> Said:
    """A call that waits for mail."""
    return call("wait_agent", {} if timeout_ms is None else {"timeout_ms": timeout_ms}, **more)


def interrupt(target: str, **more: Any) -> Said:
    """A call that interrupts."""
    return call("interrupt_agent", {"target": target}, **more)


def listing(**arguments: Any) -> Said:
    """A call that lists the agents."""
    return call("list_agents", arguments)


# ---------------------------------------------------------------- the server


@dataclass
class Asked:
    """One call that came.

    Attributes:
        path: the agent it is made for, `PLAIN` for none.
        number: which of that agent's calls, from 1; summaries are counted apart.
        summary: whether a note is asked for.
        body: what was sent.
        reply: what the server does with it.
    """

    path: str
    number: int
    summary: bool
    body: Json
    reply: Reply = field(default_factory=Reply)

    @property
    def is_open(self) -> bool:
        return not (self.reply.closed or self.reply.retired)

    @property
    def texts(self) -> list[str]:
        """What the input says, item by item: texts, arguments and outputs."""
        return [text_of_input(item) for item in self.body["input"]]


class Overrun(AssertionError):
    """An inference that the script does not have."""


class AgentUpstream:
    """Plays the script of each agent.

    Args:
        script: what each inference of an agent says, by its path; the last may be asked for no more than once either.
        summaries: the same for the notes about an agent's history.
        decide: says what an inference says, instead of the scripts.

    Attributes:
        asked: every call, in order.
        overrun: calls the script does not have; they break the run, and a test has to look that there are none.
    """

    def __init__(
        self,
        script: Mapping[str, Sequence[Turn]] | None = None,
        *,
        summaries: Mapping[str, Sequence[Turn]] | None = None,
        decide: Callable[[Asked], Turn] | None = None,
        models: Sequence[Json] = (),
    ) -> None:
        self.script = dict(script or {})
        self.summaries = dict(summaries or {})
        self.decide = decide or self._look_up
        self.asked: list[Asked] = []
        self.overrun: list[Asked] = []
        self.dialect = Plain()
        self.address = ("127.0.0.1", 8000)
        self.health = UpstreamHealth(healthy=True, detail="ok", checked_at=0, dialect="generic")
        self._models = models
        self._gates: dict[str, Gate] = {}
        self._numbers: Counter[tuple[str, bool]] = Counter()
        self._call_ids = count(1)
        self._came = asyncio.Event()

    # ------------------------------------------------------------ for the test

    def __len__(self) -> int:
        return len(self.asked)

    @property
    def running(self) -> list[str]:
        """The agents whose answers are open."""
        return [asked.path for asked in self.asked if asked.is_open]

    def of(self, path: str, *, summary: bool = False) -> list[Asked]:
        """The calls of one agent."""
        return [asked for asked in self.asked if (asked.path, asked.summary) == (path, summary)]

    def gate(self, name: str) -> Gate:
        return self._gates.setdefault(name, Gate())

    async def reached(self, *names: str) -> None:
        """Wait until inferences are held at these gates."""
        for name in names:
            await self.gate(name).reached.wait()

    async def until_asked(self, path: str, times: int) -> None:
        """Wait until so many calls of one agent have come."""
        while len(self.of(path)) < times:
            self._came.clear()
            await self._came.wait()

    async def until_closed(self, path: str) -> None:
        """Wait until no answer for this agent is open, and the gateway has done what follows from that."""
        while path in self.running:
            await asyncio.sleep(0)
        await settle()

    def release(self, *names: str) -> None:
        """Open gates."""
        for name in names:
            self.gate(name).set()

    # ------------------------------------------------------------ for the gateway

    def serves(self, model: str) -> bool:
        return model == "m"

    def length_of(self, model: str) -> int | None:
        return next((entry.get("max_model_len") for entry in self._models if entry.get("id") == model), None)

    def redact(self, text: str) -> str:
        return text

    async def open(self, upstream_call: UpstreamCall) -> Reply:
        asked = self._log(json.loads(upstream_call.body), stream=upstream_call.stream)
        try:
            turn = self.decide(asked)
        except (LookupError, Overrun):
            self.overrun.append(asked)
            raise Overrun(f"inference {asked.number} of {asked.path or 'no agent'} is not in the script") from None
        if turn and isinstance(turn[0], Hold):
            # Also the first of all can be held: before the call is accepted.
            await self._hold(asked, self.gate(turn[0].name))
            turn = turn[1:]
        if turn and isinstance(turn[0], Fail):
            asked.reply.closed += 1
            raise refusal(turn[0].status, "scripted")
        asked.reply = Reply(self._steps(asked, turn), event_stream=upstream_call.stream)
        return asked.reply

    async def models(self) -> Json:
        return {"object": "list", "data": list(self._models)}

    async def probe(self) -> UpstreamHealth:
        return self.health

    async def start(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""

    # ------------------------------------------------------------ the script

    def _log(self, body: Json, *, stream: bool) -> Asked:
        summary = not stream and bool(body["input"]) and text_of_input(body["input"][-1]) == REQUEST
        marker = MARKER.search(body.get("instructions") or "")
        path = marker[1] if marker else PLAIN
        self._numbers[path, summary] += 1
        asked = Asked(path, self._numbers[path, summary], summary, body)
        self.asked.append(asked)
        self._came.set()
        return asked

    async def _hold(self, asked: Asked, held: Gate) -> None:
        try:
            await held.wait()
        except asyncio.CancelledError:
            asked.reply.closed += 1
            raise

    def _look_up(self, asked: Asked) -> Turn:
        script = self.summaries if asked.summary else self.script
        return script[asked.path][asked.number - 1]

    def _steps(self, asked: Asked, turn: Turn) -> list[bytes | Exception | asyncio.Event]:
        if not asked.body.get("stream"):
            held: list[bytes | Exception | asyncio.Event] = [
                self._wait(step) for step in turn if isinstance(step, Hold | Pause)
            ]
            return [*held, json.dumps(self._answer(turn).response).encode()]
        return self._stream(turn)

    def _wait(self, step: Hold | Pause) -> asyncio.Event:
        return self.gate(step.name) if isinstance(step, Hold) else _Sleep(step.seconds)

    def _answer(self, turn: Turn) -> Answer:
        items = [self._place(step, place) for place, step in enumerate(s for s in turn if isinstance(s, Said))]
        deltas = [step.pieces for step in turn if isinstance(step, Said)]
        early = any(isinstance(step, Cut) and step.reason != "connection" for step in turn)
        answer = Answer(items, deltas=deltas, status="incomplete" if early else "completed")  # type: ignore[arg-type]
        for step in turn:
            if isinstance(step, Spend) and answer.usage is not None:
                total = step.read + step.written
                answer.usage |= {"input_tokens": step.read, "output_tokens": step.written, "total_tokens": total}
        return answer

    def _place(self, step: Said, place: int) -> Event:
        """The item with ids: those of items repeat in every answer, as an engine's may."""
        item = {**step.item, "id": f"{step.item['type']}_{place}"}
        if item.get("call_id") == "":
            item["call_id"] = f"call_{next(self._call_ids)}"
        return item

    def _stream(self, turn: Turn) -> list[bytes | Exception | asyncio.Event]:
        """The answer's events, with the gates and the break where the script has them."""
        before: dict[int, list[bytes | Exception | asyncio.Event]] = {}
        place = 0
        for step in turn:
            if isinstance(step, Said):
                place += 1
            elif isinstance(step, Hold | Pause):
                before.setdefault(place, []).append(self._wait(step))
            elif isinstance(step, Fail) or step == Cut("connection"):
                before.setdefault(place, []).append(UpstreamError("The inference server broke off."))
        steps: list[bytes | Exception | asyncio.Event] = []
        for number, event in enumerate(self._answer(turn).events()):
            kind = event["type"]
            if kind == "response.output_item.added":
                steps += before.pop(event["output_index"], [])
            elif kind == "response.completed":
                steps += before.pop(place, [])
            delta = event.get("delta")
            steps.append(
                self.gate(delta.name) if isinstance(delta, Hold) else frame({**event, "sequence_number": number})
            )
        return steps


def text_of_input(item: Json) -> str:
    """What one input item says."""
    if item.get("type") in ("function_call", "function_call_output"):
        told = item.get("arguments", item.get("output"))
        return told if isinstance(told, str) else json.dumps(told)
    content = item.get("content")
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content or [])
