"""An engine on scripted parts: an inference server, a clock, ids and a store that do what a test says."""

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from harness.engine import Answer

from gateway.config.schema import (
    CompactionConfig,
    EngineConfig,
    GatewayConfig,
    MultiAgentConfig,
    ResponsesConfig,
    ServerConfig,
    TelemetryConfig,
    ToolsConfig,
    UpstreamConfig,
)
from gateway.engine.delivery import EncodedEvent
from gateway.engine.plan import Caller, Plan
from gateway.engine.service import Engine
from gateway.ports import Sealer, SealMismatch, StoredResponse, Tools, UpstreamCall, UpstreamHealth
from gateway.protocol.errors import UpstreamRefused
from gateway.storage.memory import MemoryStore
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing
from gateway.tools.gate import Gate
from gateway.tools.registry import ToolRegistry

Json = dict[str, Any]
Step = bytes | Exception | asyncio.Event

NOW = 1_790_000_000
# Longer than any test takes: a wait that ends by it fails the test.
LONG = 20.0


class SettableClock:
    """Time stands still until a test moves it."""

    def __init__(self, seconds: float = NOW) -> None:
        self.seconds = seconds

    def now(self) -> float:
        return self.seconds

    def monotonic(self) -> float:
        return self.seconds


class CountingIds:
    """Ids of the usual shape, the same in every run."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def mint(self, prefix: str) -> str:
        return f"{prefix}_{next(self._numbers):032x}"


@dataclass
class Reply:
    """What the scripted server does with one call.

    Attributes:
        steps: each read returns the next bytes, raises the next error, or waits for the next event first.
        event_stream: whether it says that its body is an event stream.
        accept: the status line is held back until this is set.
        error: raised instead of accepting the call.
        closed: how often the exchange was closed.
        retired: how often it was handed back complete.
    """

    steps: Iterable[Step] = ()
    event_stream: bool = True
    accept: asyncio.Event | None = None
    error: Exception | None = None
    closed: int = 0
    retired: int = 0
    _arrived: bool = False
    _waiting: deque[Step] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self._waiting.extend(self.steps)

    is_translated = False

    @property
    def is_kept_early(self) -> bool:
        """Whether it was handed back complete although there is more to come: the server goes on in vain."""
        return bool(self.retired and self._waiting)

    @property
    def is_event_stream(self) -> bool:
        return self.event_stream

    def take(self) -> bytes | None:
        if not self._waiting:
            return b""
        step = self._waiting[0]
        if isinstance(step, Exception):
            raise step
        if not isinstance(step, bytes) or not self._arrived:
            return None
        self._arrived = False
        self._waiting.popleft()
        return step

    async def arrival(self) -> None:
        step = self._waiting[0]
        if isinstance(step, asyncio.Event):
            await step.wait()
            self._waiting.popleft()
        else:
            # Bytes that have arrived already still cost a turn of the loop.
            await asyncio.sleep(0)
            self._arrived = True

    async def read(self) -> bytes:
        while (data := self.take()) is None:
            await self.arrival()
        return data

    def retire(self) -> None:
        self.retired += 1

    async def close(self) -> None:
        self.closed += 1


def streamed(answer: Answer, *, at_once: bool = False) -> Reply:
    """The answer as a stream, one event a read, or all of it in one read."""
    return Reply([b"".join(answer.frames())] if at_once else answer.frames())


def whole(answer: Answer) -> Reply:
    """The answer as one JSON body."""
    return Reply([json.dumps(answer.response).encode()], event_stream=False)


def refusal(status: int = 429, code: str = "busy") -> UpstreamRefused:
    return UpstreamRefused("The engine is busy.", upstream_status=status, code=code, type="rate_limit_error")


class Plain:
    """A dialect that changes nothing."""

    name = "generic"

    def adapt(self, body: Json) -> Json:
        return body

    def ask_tokens(self, body: Json) -> None:
        return None


class ScriptedUpstream:
    """Plays one reply per call, in order, and remembers the calls."""

    def __init__(self, *replies: Reply, models: Sequence[Any] | Exception = ()) -> None:
        self.replies = deque(replies)
        self.calls: list[UpstreamCall] = []
        self.listed = models
        self.dialect = Plain()
        self.address = ("127.0.0.1", 8000)
        self.health = UpstreamHealth(healthy=True, detail="ok", checked_at=0, dialect="generic")

    @property
    def bodies(self) -> list[Json]:
        return [json.loads(call.body) for call in self.calls]

    def serves(self, model):
        return model == "m"

    def length_of(self, model):
        return None

    def redact(self, text):
        return text.replace("s3cret", "[redacted]")

    async def open(self, call: UpstreamCall) -> Reply:
        self.calls.append(call)
        reply = self.replies.popleft()
        if reply.accept is not None:
            await reply.accept.wait()
        if reply.error is not None:
            raise reply.error
        return reply

    async def models(self) -> Json:
        if isinstance(self.listed, Exception):
            raise self.listed
        return {"object": "list", "data": list(self.listed)}

    async def probe(self) -> UpstreamHealth:
        return self.health

    async def start(self) -> None:
        """Nothing to open."""

    async def close(self) -> None:
        """Nothing to close."""


class OpenSealer:
    """Seals for everybody to read, so that a test can."""

    def seal(self, principal: str, kind: str, plaintext: bytes) -> str:
        return json.dumps(["sealed", principal, kind, plaintext.decode()])

    def unseal(self, principal: str, kind: str, token: str) -> bytes | None:
        if not token.startswith('["sealed"'):
            return None
        _, owner, sealed_as, plaintext = json.loads(token)
        if (owner, sealed_as) != (principal, kind):
            raise SealMismatch
        return plaintext.encode()


class HeldStore(MemoryStore):
    """A store that commits only when told to; as the real writer does, also for callers that have gone."""

    def __init__(self) -> None:
        super().__init__()
        self.queued: list[StoredResponse] = []
        self.reached = asyncio.Event()
        self._committed = asyncio.Event()

    async def append(self, response: StoredResponse) -> None:
        self.queued.append(response)
        self.reached.set()
        await self._committed.wait()

    async def commit(self) -> None:
        for response in self.queued:
            await super().append(response)
        self._committed.set()


class BrokenStore(MemoryStore):
    """A store whose appends fail."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def append(self, response: StoredResponse) -> None:
        raise self.error


class Listener:
    """The channel of one response to a client that reads, until a test says otherwise.

    Attributes:
        opened: whether the client was told anything.
        ended: whether it was told all.
        reads: clear it, and the client takes no more than one batch.
        waiting: the batches no test has taken yet.
        task: the run.
    """

    def __init__(self) -> None:
        self.opened = False
        self.ended = False
        self.reads = asyncio.Event()
        self.reads.set()
        self.waiting: list[list[EncodedEvent]] = []
        self.task: asyncio.Task[None]
        self._arrived = asyncio.Event()

    def write(self, batch: list[EncodedEvent]) -> bool:
        if not self.opened or not self.reads.is_set():
            return False
        self._take(batch)
        return True

    async def put(self, batch: list[EncodedEvent]) -> None:
        try:
            await self._until_read()
        finally:
            self._take(batch)

    async def end(self, batch: list[EncodedEvent]) -> None:
        await self._until_read()
        self._take(batch)
        self.ended = True

    async def _until_read(self) -> None:
        if self.waiting:
            await self.reads.wait()

    def _take(self, batch: list[EncodedEvent]) -> None:
        assert not self.ended
        assert batch
        self.opened = True
        self.waiting.append(batch)
        self._arrived.set()

    def take(self) -> list[Json]:
        """What has come since the last take, decoded."""
        told = [json.loads(data) for batch in self.waiting for _, data in batch]
        self.waiting.clear()
        return told

    async def take_all(self) -> list[Json]:
        """What comes until the end, decoded; raises what the run failed with."""
        await asyncio.wait_for(asyncio.wait([self.task]), LONG)
        self.task.result()
        assert self.ended
        return self.take()

    async def take_until_silent(self) -> list[Json]:
        """What comes before the stream falls silent without having ended, decoded."""
        await asyncio.wait_for(self._arrived.wait(), LONG)
        # Counted in turns of the loop, so that a slow machine does not look like silence.
        await settle(200)
        assert not self.ended, "the stream ended"
        return self.take()


class Bench:
    """An engine with everything it touches within reach."""

    def __init__(
        self,
        *replies: Reply,
        store: MemoryStore | None = None,
        server: Json | None = None,
        upstream: Json | None = None,
        responses: Json | None = None,
        telemetry: Json | None = None,
        compaction: Json | None = None,
        sealer: Sealer | None = None,
        deadline: float = LONG,
        tracing: Tracing | None = None,
        tools: Tools | None = None,
        bounds: Json | None = None,
        rounds: int = 64,
        played: Any = None,
        agents: Json | None = None,
    ) -> None:
        self.upstream = ScriptedUpstream(*replies)
        self.store = store or MemoryStore()
        self.clock = SettableClock()
        self.metrics = Metrics()
        self.tracing = tracing or Tracing()
        self.config = GatewayConfig(
            server=ServerConfig(**(server or {})),
            upstream=UpstreamConfig(**(upstream or {})),
            responses=ResponsesConfig(**(responses or {})),
            engine=EngineConfig(run_deadline_seconds=deadline, max_rounds=rounds),
            tools=ToolsConfig(**(bounds or {})),
            telemetry=TelemetryConfig(**(telemetry or {})),
            compaction=CompactionConfig(**(compaction or {})),
            multi_agent=MultiAgentConfig(**(agents or {})),
        )
        self.engine = Engine(
            self.config,
            store=self.store,
            upstreams={"default": self.upstream if played is None else played},
            metrics=self.metrics,
            tracing=self.tracing,
            clock=self.clock,
            ids=CountingIds(),
            tools=tools and ToolRegistry([tools], Gate(self.config.tools, self.metrics)),
            sealer=sealer,
        )

    async def plan(self, principal: str = "local", transport: str = "json", **fields: Any) -> Plan:
        request, route = self.engine.read(json.dumps({"model": "m", "input": "hi", **fields}).encode())
        caller = Caller(principal=principal, transport=transport, headers={})
        return await self.engine.prepare(caller, request, route)

    async def answer(self, *replies: Reply, principal: str = "local", **fields: Any) -> Json:
        """Make one response as JSON, the server playing `replies`."""
        self.upstream.replies.extend(replies)
        return json.loads(await self.engine.answer(await self.plan(principal, **fields)))

    async def start(self, *replies: Reply, principal: str = "local", **fields: Any) -> tuple["Listener", asyncio.Task]:
        """Begin one response as events."""
        self.upstream.replies.extend(replies)
        listener = Listener()
        plan = await self.plan(principal, "sse", stream=True, **fields)
        listener.task = asyncio.create_task(self.engine.stream(plan, listener))
        return listener, listener.task

    async def stream(self, *replies: Reply, **fields: Any) -> list[Json]:
        """Make one response as events and return them, decoded."""
        listener, _ = await self.start(*replies, **fields)
        return await listener.take_all()

    def sample(self, name: str, **labels: str) -> float | None:
        """One sample of the metrics, None when it was never touched."""
        return self.metrics.registry.get_sample_value(f"gateway_{name}", labels)

    async def stored(self, response_id: str, principal: str = "local") -> StoredResponse | None:
        return await self.store.response(principal, response_id)


async def settle(turns: int = 20) -> None:
    """Let everything that can run do so."""
    for _ in range(turns):
        await asyncio.sleep(0)


def types(told: Iterable[Json]) -> list[str]:
    return [event["type"].removeprefix("response.") for event in told]


def sizes(told: Iterable[Json]) -> list[int]:
    """Size of each event as it was sent."""
    return [len(json.dumps(event, ensure_ascii=False, separators=(",", ":")).encode()) for event in told]


def text_of(response: Json) -> str:
    """All text of a response's messages."""
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])
