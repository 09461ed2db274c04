"""Moments in the life of a response of several agents: how to get there, and what must be left of it afterwards."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from harness.client import client
from harness.engine import Answer, call, says
from harness.frames import Event
from harness.upstream import Reply, Request, Script, Upstream
from integration.databases import DatabaseGateway
from integration.tree_visitors import TRANSPORTS, Visitor, join
from integration.trees import ALPHA, BETA, ON, ROOT, TOOL, agent_of, play

from gateway.protocol.compaction_prompt import REQUEST

Json = dict[str, Any]
HELPER = "/root/beta"
SETTINGS = {
    "security.seal_keys": "A" * 43 + "=",
    "storage.history_cache_bytes": "0",
    "server.commit_after_seconds": "0.01",
    # Nobody tries whether the database takes writes while it is locked.
    "storage.verify_after_seconds": "3600",
}
PATIENCE_SECONDS = 10.0
Frames = Sequence[Event]


@dataclass(frozen=True)
class Held:
    """An answer that comes so far, in events, and no further."""

    answer: Answer
    events: int = 0

    async def __call__(self, request: Request, reply: Reply) -> None:
        if self.events:
            await reply.head()
            await reply.send(b"".join(self.answer.frames()[: self.events]))
        await asyncio.sleep(600)


def silent() -> Held:
    """An answer that never begins."""
    return Held(says(""))


def calls(*made: tuple[str, str]) -> Answer:
    """An answer of calls: names and arguments."""
    return Answer([call(name, arguments, f"call_{place}_{name}") for place, (name, arguments) in enumerate(made)])


SPAWN = ("spawn_agent", '{"task_name":"alpha","message":"Ask."}')
WAIT = ("wait_agent", "{}")
ASK = ("get_proposal", "{}")
WORDS = says("many words of an answer that has not come to its end")


# ---------------------------------------------------------------- the moments


@dataclass(frozen=True)
class Moment:
    """A point that a response comes to.

    Attributes:
        script: what the agents say, the last again and again.
        told: whether the client has been told what tells it; None where something else does.
        asked: whose inference the server is asked for, if that tells it.
        injects: the output of the client's call is injected on the way.
        compacts: the agents' windows are too large.
        locked: the database takes nothing in meanwhile.
        stored: whether the response is there afterwards; None where it may be, but then whole.
    """

    script: Mapping[str, Sequence[Script]]
    told: Callable[[Event], bool] | None = None
    asked: str | None = None
    injects: bool = False
    compacts: bool = False
    locked: bool = False
    stored: bool | None = False

    @property
    def transports(self) -> Sequence[str]:
        """On which a response can come to it."""
        return ("websocket",) if self.injects else TRANSPORTS


def told(type_: str, agent: str | None = None, **item: Any) -> Callable[[Event], bool]:
    """Whether an event is of this type, of this agent, and of an item with these values."""

    def matches(event: Event) -> bool:
        held = {name: event.get("item", {}).get(name) for name in item}
        owner = (event.get("agent") or {}).get("agent_name")
        return event["type"] == f"response.{type_}" and agent in (None, owner) and held == item

    return matches


DONE, DELTA = "output_item.done", "output_text.delta"
ENDS: Mapping[str, Sequence[Script]] = {ROOT: [says("root is done")], HELPER: [says("beta has it")]}
MOMENTS: Mapping[str, Moment] = {
    "begun": Moment({ROOT: [silent()], HELPER: [silent()]}, told("in_progress"), ROOT),
    "round open": Moment({ROOT: [Held(WORDS, 5)], HELPER: [silent()]}, told(DELTA, ROOT)),
    "action open": Moment(
        {ROOT: [Held(calls(SPAWN, WAIT), 6)], HELPER: [silent()]},
        told("output_item.added", ROOT, type="multi_agent_call"),
    ),
    "action told": Moment(
        {ROOT: [calls(SPAWN), silent()], HELPER: [silent()], ALPHA: [silent()]},
        told(DONE, ROOT, type="multi_agent_call_output", action="spawn_agent"),
        ALPHA,
    ),
    "child open": Moment({ROOT: [calls(SPAWN, WAIT)], HELPER: [silent()], ALPHA: [Held(WORDS, 5)]}, told(DELTA, ALPHA)),
    "mail": Moment(
        {ROOT: [calls(WAIT), silent()], HELPER: [says("beta has it")]}, told(DONE, ROOT, type="agent_message"), ROOT
    ),
    "wait": Moment(
        {ROOT: [calls(WAIT)], HELPER: [silent()]}, told(DONE, ROOT, type="multi_agent_call", action="wait_agent")
    ),
    "tool pending": Moment(
        {ROOT: [calls(SPAWN, WAIT)], HELPER: [silent()], ALPHA: [calls(ASK)]}, told(DONE, ALPHA, type="function_call")
    ),
    "inject acked": Moment(
        {ROOT: [calls(SPAWN, WAIT)], HELPER: [silent()], ALPHA: [calls(ASK), silent()]},
        told("inject.created"),
        ALPHA,
        injects=True,
    ),
    "compaction": Moment({ROOT: [says("root is done")], HELPER: [silent()]}, None, REQUEST, compacts=True),
    "before commit": Moment(ENDS, told(DONE, ROOT, type="message"), locked=True, stored=None),
    "after commit": Moment(ENDS, stored=True),
    "terminal": Moment(ENDS, told("completed"), stored=True),
}


# ---------------------------------------------------------------- what is to be there afterwards


@dataclass
class Parent:
    """A stored tree that waits for its client: its response, and how its agents go on from it.

    Attributes:
        response: the response.
        shown: what the first inferences of a continuation showed each agent.
        rows: all that the database holds of it.
    """

    response: Json
    shown: Mapping[str, Any] = field(default_factory=dict)
    rows: Sequence[Any] = ()

    @property
    def given(self) -> list[Json]:
        """What continues from it."""
        (pending,) = [item["call_id"] for item in self.response["output"] if item["type"] == "function_call"]
        return [
            {"type": "function_call_output", "call_id": pending, "output": "six weeks"},
            {"type": "message", "role": "user", "content": "go on " * 40},
        ]


class Visit:
    """One client of a response that comes to a moment.

    Attributes:
        visitor: the client.
        moment: the moment.
        response_id: of the response.
    """

    def __init__(self, visitor: Visitor, moment: Moment) -> None:
        self.visitor = visitor
        self.moment = moment
        self.response_id = ""

    def arrive(self) -> None:
        """Read on until the client is told what tells the moment."""
        event = self.visitor.next_event()
        assert "response" in event, event
        self.response_id = event["response"]["id"]
        while self.moment.told and not self.moment.told(event):
            event = self.visitor.next_event()
            item = event.get("item", {})
            if self.moment.injects and event["type"].endswith(DONE) and item["type"] == "function_call":
                output = {"type": "function_call_output", "call_id": item["call_id"], "output": "eight weeks"}
                self.visitor.inject(self.response_id, output)


class Scene:
    """A gateway and its inference server, brought to a moment, and examined afterwards.

    Args:
        gateway: the gateway; running whenever something is asked of it.
        upstream: the inference server.
        database: URL of the gateway's database.
    """

    def __init__(self, gateway: DatabaseGateway, upstream: Upstream, database: str) -> None:
        self.gateway = gateway
        self._upstream = upstream
        self._database = database
        self._runs = 0
        self._kept: dict[str, Json] = {}

    def begin(self) -> None:
        """Make the parent of all, a tree with a call that waits."""
        script = {ROOT: [calls(("spawn_agent", '{"task_name":"beta","message":"Ask."}'), WAIT)], HELPER: [calls(ASK)]}
        made = self._create(self._script(play(script)), input="Compare.", multi_agent=ON)
        self._parent = Parent(made)
        self._parent.shown = self._continue(made["id"], self._parent.given)
        self._parent.rows = self._rows_of(made["id"])

    def move(self, gateway: DatabaseGateway, database: str) -> None:
        """Go on with another gateway, which has to have what was stored until now or until it was copied."""
        self.gateway, self._database = gateway, database

    @contextmanager
    def at(self, moment: Moment, transport: str) -> Iterator["Visit"]:
        """Have a response of the parent's tree come to that moment; a client of it is still there."""
        model = self._script(self._play(moment))
        body = {"input": self._parent.given, "tools": [TOOL], "previous_response_id": self._parent.response["id"]}
        if moment.compacts:
            body["context_management"] = [{"type": "compaction", "compact_threshold": 20}]
        with ExitStack() as held:
            if moment.locked:
                held.enter_context(lock(self._database))
            visitor = held.enter_context(join(self.gateway.port, transport))
            visitor.ask({"model": model, **body})
            visit = Visit(visitor, moment)
            visit.arrive()
            if moment.told is None and moment.stored:
                self._await(lambda: visit.response_id in self._ids())
            if moment.asked:
                self._await(lambda: any(whose(call_) == moment.asked for call_ in self._upstream.calls(model)))
            yield visit

    def examine(self, visit: "Visit") -> list[str]:
        """Return what is broken after the end of that client or of the gateway, which runs again by now."""
        parent = self._parent
        with client(self.gateway.port) as reader:
            answer = reader.get(f"/v1/responses/{visit.response_id}")
            faults = [] if reader.get(f"/v1/responses/{parent.response['id']}").json == parent.response else ["parent"]
        stored = answer.status == 200
        if visit.moment.stored not in (None, stored):
            faults.append(f"GET is {answer.status}")
        if stored:
            self._kept[visit.response_id] = answer.json
            faults += self._examine_stored(answer.json)
        faults += self._examine_database()
        if self._rows_of(parent.response["id"]) != parent.rows:
            faults.append("the parent's rows changed")
        if self._continue(parent.response["id"], parent.given) != parent.shown:
            faults.append("the parent's agents are shown something else")
        return faults

    def _examine_stored(self, response: Json) -> list[str]:
        said = sorted(
            part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"]
        )
        faults = (
            [] if (response["status"], said) == ("completed", ["beta has it", "root is done"]) else [f"said {said}"]
        )
        asks = calls(("followup_task", '{"target":"beta","message":"More?"}'))
        shown = str(self._continue(response["id"], "and now?", {ROOT: [asks, says("root goes on")]}))
        return faults + [f"not shown: {text}" for text in (*said, "six weeks", "Compare.") if text not in shown]

    def _examine_database(self) -> list[str]:
        known = self._ids()
        faults = [f"stored: {id_}" for id_ in known - self._kept.keys()]
        for table in ("items", "agents"):
            owners = {owner for (owner,) in self.gateway.query(f"SELECT DISTINCT response_id FROM {table}")}
            faults += [f"{table} of {owner}" for owner in owners - known]
        if self.gateway.on_sqlite:
            faults += [line for (line,) in self.gateway.query("PRAGMA integrity_check") if line != "ok"]
        return faults

    # ------------------------------------------------------------ requests that come to their end

    def _continue(self, parent: str, given: Any, script: Mapping[str, Sequence[Answer]] | None = None) -> Json:
        """Continue, and return what the first inference of each agent was shown."""
        model = self._script(play({path: [says(f"{path} goes on")] for path in (ROOT, HELPER)} | dict(script or {})))
        made = self._create(model, input=given, previous_response_id=parent)
        assert made["status"] == "completed"
        shown: Json = {}
        for asked in self._upstream.calls(model):
            shown.setdefault(agent_of(asked.body), (asked.body["instructions"], asked.body["input"]))
        return shown

    def _create(self, model: str, **body: Any) -> Json:
        with client(self.gateway.port) as caller:
            answer = caller.create({"model": model, "tools": [TOOL], **body}, BETA)
        assert answer.status == 200, answer.body
        made: Json = answer.json
        self._kept[made["id"]] = made
        return made

    def _script(self, script: Script) -> str:
        self._runs += 1
        return self._upstream.script(f"run {self._runs} on {self._database}", script)

    def _play(self, moment: Moment) -> Script:
        turns = play(moment.script)  # type: ignore[arg-type]

        async def answer(request: Request, reply: Reply) -> None:
            await (silent() if whose(request) == REQUEST else turns)(request, reply)

        return answer

    # ------------------------------------------------------------ the database

    def _ids(self) -> set[str]:
        return {id_ for (id_,) in self.gateway.query("SELECT id FROM responses")}

    def _rows_of(self, id_: str) -> list[Any]:
        tables = {"responses": "id", "items": "response_id", "agents": "response_id"}
        return [
            sorted(repr(tuple(row)) for row in self.gateway.query(f"SELECT * FROM {table} WHERE {column} = '{id_}'"))
            for table, column in tables.items()
        ]

    def _await(self, come: Callable[[], bool]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not come():
            assert time.monotonic() < deadline
            time.sleep(0.01)


def whose(request: Request) -> str:
    """Return the agent that an inference is for, or the words that ask for a summary."""
    return REQUEST if json.dumps(REQUEST)[1:-1] in request.raw.decode() else agent_of(request.body)


@contextmanager
def lock(database: str) -> Iterator[None]:
    """Let nobody write meanwhile."""
    if database.startswith("sqlite"):
        writer = sqlite3.connect(database.removeprefix("sqlite:///"), isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            writer.close()
    else:
        with psycopg.connect(database) as session:
            session.execute("LOCK TABLE responses IN EXCLUSIVE MODE")
            yield
