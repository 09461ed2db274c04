"""Agents that do anything at all, and a client that does: what they do follows from one source of chance."""

import asyncio
import json
from collections import Counter
from itertools import pairwise
from typing import NamedTuple

from agents.site import PROPOSAL, CountingStore, Refused, Site, output
from harness.agent_rules import check_run
from harness.agents import (
    AgentUpstream,
    Asked,
    Pause,
    call,
    cut,
    fail,
    follow,
    interrupt,
    listing,
    say,
    send,
    spawn,
    spend,
    think,
    wait,
)
from harness.tools import MCP, ScriptedTools, returned, tool

from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.tree import Tree
from gateway.protocol.errors import StorageUnavailable

MOST_AGENTS = 11
MOST_INFERENCES = 70
THRESHOLD = 50_000
TOOLS = [tool("look"), tool("pay", kind="mcp_approval_request")]
LONG = "many words " * 40
NAMES = ("a", "b", "c")
# What an engine may be sent.
KNOWN = ("message", "reasoning", "function_call", "function_call_output")
VISIBLE = ("message", "reasoning", "function_call", "multi_agent_call", "agent_message")


class Models:
    """What inferences say, by chance: calls of all kinds, words, thoughts, failures, in any time.

    Attributes:
        most: inferences of agents after which all of them come to an end.
    """

    def __init__(self, random, limit):
        self.random = random
        self.limit = limit
        self.inferences = 0
        self.faults = []
        self.upstream = AgentUpstream(decide=self.decide)

    def decide(self, asked: Asked):
        random, running = self.random, self.upstream.running
        # The call at hand is open already. Nobody would see what is raised here.
        if running.count(asked.path) != 1:
            self.faults.append(f"{asked.path} is asked twice at once")
        if len({path for path in running if path != "/root"}) > self.limit:
            self.faults.append(f"{running} run at once, above {self.limit}")
        self.faults += check_input(asked.body["input"])
        pause = Pause(random.choice((0, 0, 0.001, 0.5, 15)))
        if asked.summary:
            turn = random.choice(([say("A note.")], [say("A note.")], [say("Another note.")], [say("")], [fail(500)]))
            return [pause, *turn] if not isinstance(turn[0], type(fail())) else turn
        self.inferences += 1
        if self.inferences > MOST_INFERENCES:
            return [pause, say("That is all.")]
        return [pause, *self.make_turn(asked.path), spend(random.choice((10, 20_000, 60_000)), 5)]

    def make_turn(self, path):
        random = self.random
        kind = random.choices(
            ("words", "calls", "both", "client", "thoughts", "failure", "break", "length"),
            (5, 9, 4, 4, 1, 0.3, 0.3, 0.3),
        )[0]
        if path == "/root" and kind in ("failure", "break", "length") and random.random() < 0.7:
            kind = "words"
        match kind:
            case "words":
                return [say(LONG, "and ", "more")]
            case "thoughts":
                return [think("hm")]
            case "failure":
                return [say("half"), fail(500)]
            case "break":
                return [say("half"), cut("connection")]
            case "length":
                return [say("half"), cut()]
            case "client":
                return [self.ask() for _ in range(random.randint(1, 2))]
        steps = [self.make_action() for _ in range(random.randint(1, 4))]
        if kind == "both":
            steps.insert(
                random.randint(0, len(steps)), random.choice((say("Well."), think("hm"), self.ask(), self.look()))
            )
        if random.random() < 0.2:
            steps.append(self.look())
        return steps

    def look(self):
        """A tool of the gateway's: one that is run at once, or one that the client has to approve."""
        return call(f"mcp__s__{self.random.choice(('look', 'look', 'pay'))}", '{"a": "x"}')

    async def run_tool(self, made):
        """A tool of the gateway's, in some time."""
        await asyncio.sleep(self.random.choice((0, 0.01, 3)))
        return returned(made.arguments)

    def ask(self):
        # Few ids, so that agents and rounds share them.
        return call("get_proposal", {"proposal": "x"}, id=f"call_{self.random.randint(1, 5)}")

    def make_action(self):
        random = self.random
        target = random.choice((*NAMES, "/root", "/root/a", "/root/b", "/root/a/b", "/root/b/c/a", "nobody"))
        match random.choices(("spawn", "send", "follow", "wait", "interrupt", "list", "wrong"), (6, 4, 3, 4, 3, 1, 1))[
            0
        ]:
            case "spawn":
                forks = random.choice(({}, {"fork_turns": "none"}, {"fork_turns": "1"}, {"fork_turns": "x"}))
                return spawn(random.choice(NAMES), LONG, **forks)
            case "send":
                return send(target, "A note.")
            case "follow":
                return follow(target, "More.")
            case "wait":
                return wait(random.choice((None, 1, 20_000, 10**9)))
            case "interrupt":
                return interrupt(target)
            case "list":
                return listing()
        return call(
            random.choice(("spawn_agent", "wait_agent", "followup_task")), random.choice(("{", "[]", '{"x": 1}'))
        )


def check_input(items):
    """What is wrong with what a model is shown: only what engines know, and every output right behind its call."""
    faults = [f"an engine is sent {item['type']}" for item in items if item["type"] not in KNOWN]
    faults += [f"an engine is told {name}" for item in items for name in ("agent", "phase") if name in item]
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    behind = [
        answer.get("call_id")
        for item, answer in pairwise([*items, {"type": "end"}])
        if item["type"] == "function_call" and answer["type"] == "function_call_output"
    ]
    answers = [item["call_id"] for item in items if item["type"] == "function_call_output"]
    return faults if calls == behind == answers else [*faults, f"calls {calls}, outputs {answers}"]


class Link(NamedTuple):
    """One stored response, and the calls that its input and injects answered."""

    response: dict
    given: list
    injected: list


class MoodyStore(CountingStore):
    """A store that fails now and then."""

    def __init__(self, random):
        super().__init__()
        self._random = random

    async def append(self, response):
        await asyncio.sleep(self._random.choice((0, 0, 0.01)))
        if self._random.random() < 0.03:
            raise StorageUnavailable("The disk is full.")
        await super().append(response)


class Life:
    """A chain of responses on one gateway, and a client that answers calls as it likes.

    Attributes:
        chain: what is stored, oldest first.
    """

    def __init__(self, random):
        self.random = random
        self.limit = random.choice((1, 3, 5, MOST_AGENTS))
        self.models = Models(random, self.limit)
        self.site = Site(
            server=self.models.upstream,
            store=MoodyStore(random),
            tools=ScriptedTools(known=TOOLS, behaviours={"look": self.models.run_tool, "pay": self.models.run_tool}),
            multi_agent={
                "max_agents_total": MOST_AGENTS,
                "wait_max_ms": 60_000,
                "wait_min_ms": 1000,
                "max_mailbox_entries": 5,
                "run_deadline_s": 10**6,
                "max_tree_bytes": random.choice((10**7, 10**7, 65_536)),
            },
        )
        self.chain = []

    async def live(self):
        """Make a few responses; raises AssertionError for whatever must not be."""
        for _ in range(4):
            self.turn_back()
            transport = self.random.choice(("json", "sse", "leave", *["websocket"] * 4))
            match transport:
                case "websocket":
                    response = await self.converse()
                case "leave":
                    response = await self.leave()
                case _:
                    response = await self.ask(transport)
            self.site.assert_at_rest()
            assert not self.models.faults, self.models.faults
            if response is None or response["status"] == "failed":
                continue
            self.check_stored()

    def request(self):
        """What is sent: a message, and all outputs that may be waited for."""
        given = [{"type": "message", "role": "user", "content": "Go on."}]
        given += [self.answer(call_id) for call_id in self.pending()]
        fields = {
            "input": given,
            "tools": [PROPOSAL, MCP],
            "multi_agent": {"enabled": True, "max_concurrent_subagents": self.limit},
            "context_management": [{"type": "compaction", "compact_threshold": THRESHOLD}],
        }
        if self.chain:
            fields["previous_response_id"] = self.chain[-1].response["id"]
            if self.random.random() < 0.15:
                fields["input"] = [{"type": "compaction_trigger"}]
        return fields

    def answer(self, asked):
        """What a client gives for a call, or for a call that it has to approve."""
        if asked.startswith("mcpr_"):
            approve = self.random.random() < 0.7
            return {"type": "mcp_approval_response", "approval_request_id": asked, "approve": approve}
        return output(asked, "given")

    def turn_back(self):
        """Go on from an earlier response, as another one may have."""
        if self.chain and self.random.random() < 0.2:
            del self.chain[self.random.randrange(len(self.chain)) :]

    def pending(self):
        """Calls of the chain without an output. An id that a note has swallowed may come again."""
        waiting = set()
        for link in self.chain:
            waiting -= set(link.given)
            waiting |= {asked for item in link.response["output"] if (asked := asked_in(item)) is not None}
            waiting -= set(link.injected)
        return sorted(waiting)

    def note(self, given, response, injected=()):
        """Remember a response that was stored."""
        if response is not None and response["status"] != "failed":
            self.chain.append(Link(response, [answered for item in given if (answered := answered_in(item))], injected))

    async def ask(self, transport):
        fields = self.request()
        if transport == "json":
            request = self.site.request(**fields)
            await request.serve(self.site.endpoint)
            assert request.status in (200, 500, 502, 503)
            assert is_known(request.json)
            response = request.json if request.status == 200 else None
        else:
            try:
                events = await self.site.stream(**fields)
            except Refused as refused:
                # So it was before the client was told anything.
                events = [refused.error]
            assert is_known(events[-1])
            if not is_end(events[-1]):
                return None
            assert check_run(events, dropped=True) == []
            response = events[-1].get("response")
        self.note(fields["input"], response)
        return response

    async def leave(self):
        """Over HTTP, where the client leaves at some time; returns None, unless it heard of the end."""
        request = self.site.request(stream=True, **self.request())
        serving = asyncio.create_task(request.serve(self.site.endpoint))
        await asyncio.wait([serving], timeout=self.random.choice((0, 0.01, 1, 30)))
        request.gone.set()
        await serving

    async def converse(self):
        """On a WebSocket, with one response or some; the client injects what it likes, and may leave at any time."""
        async with self.site.connect() as client:
            for _ in range(self.random.choice((1, 1, 2, 3))):
                response = await self.exchange(client)
                if client.socket.close_code is not None:
                    return None
                if response is not None and response["status"] != "failed":
                    self.check_stored()
        return response

    async def exchange(self, client):
        """Make one response; returns None if it was refused, or the client left."""
        fields, start = self.request(), len(client.socket.frames)
        client.create(**fields)
        injecting = asyncio.create_task(self.inject(client, start))
        ending = asyncio.create_task(until(client, start, is_end))
        try:
            if self.random.random() < 0.12:
                await asyncio.wait([ending], timeout=self.random.choice((0, 0.01, 1, 30)))
                if not ending.done():
                    client.socket.leave()
                    await client.task
                    return None
            await ending
            sent = await injecting
            while sum(is_answer(frame) for frame in client.socket.frames[start:]) < len(sent):
                await client.socket.arrival()
        finally:
            injecting.cancel()
            ending.cancel()
            await asyncio.wait([injecting, ending])
        frames = client.socket.frames[start:]
        assert all(map(is_known, frames))
        if frames[0]["type"] == "error":
            # The first inference of all was refused.
            return None
        assert check_run(frames, sent, dropped=True) == []
        response = next(frame["response"] for frame in frames if is_end(frame))
        answers = [frame for frame in frames if is_answer(frame)]
        taken = [
            answered_in(item)
            for batch, answer in zip(sent, answers, strict=True)
            if answer["type"].endswith("created")
            for item in batch["input"]
        ]
        assert len(set(taken)) == len(taken), "an output was taken twice"
        self.note(fields["input"], response, taken)
        return response

    async def inject(self, client, start):
        """Answer calls one by one, several at once, twice, and some that nobody made; returns what was sent."""
        random, sent, seen = self.random, [], 0
        begun = await until(client, start, lambda frame: True)
        if begun["type"] == "error":
            return sent
        response_id = begun["response"]["id"]
        while True:
            frames = client.socket.frames[start:]
            calls = [asked for frame in frames if (asked := read_call(frame)) is not None]
            ended = any(is_end(frame) for frame in frames)
            if ended and random.random() < 0.8:
                return sent
            if len(calls) > seen or ended:
                seen = len(calls)
                await asyncio.sleep(random.choice((0, 0, 0.1, 0.3, 5)))
                batch = random.sample(calls, random.randint(0, min(2, len(calls))))
                if random.random() < 0.1:
                    batch.append("call_unknown")
                sent.append({"input": [self.answer(call_id) for call_id in batch]})
                client.inject(response_id, *sent[-1]["input"])
                if ended:
                    return sent
            else:
                await client.socket.arrival()

    # ------------------------------------------------------------ what is stored

    def check_stored(self):
        """The stored tree of the newest response is what its chain told the client."""
        rows = [row for stored in self.stored_chain() for row in stored.agents]
        tree = Tree.restore(rows, Bounds())
        told = [item for link in self.chain for item in link.response["output"]]
        assert set(tree.agents) >= {item["agent"]["agent_name"] for item in told}
        for path, agent in tree.agents.items():
            mine = [item for item in told if item["agent"]["agent_name"] == path]
            behind = 1 + max((at for at, item in enumerate(agent.history) if item["type"] == "compaction"), default=-1)
            tail = agent.history[behind:]
            expected = [show(item) for item in mine if item["type"] in VISIBLE]
            kept = [show(item) for item in tail if item["type"] in VISIBLE and is_shown(item)]
            # What a fork copied stands before the agent's own, and what was told before a note is not there any more.
            common = min(len(kept), len(expected))
            assert behind or common == len(expected), path
            assert kept[len(kept) - common :] == expected[len(expected) - common :], path
            results = {item["call_id"]: text_of(item) for item in mine if item["type"] == "multi_agent_call_output"}
            for item in tail:
                if item["type"] == "multi_agent_call_output" and item["call_id"] in results:
                    assert text_of(item) == results[item["call_id"]]
        for agent in tree.agents.values():
            calls = Counter(item["call_id"] for item in agent.history if item["type"] == "function_call")
            calls += Counter(item["id"] for item in agent.history if item["type"] == "mcp_approval_request")
            answers = Counter(item["call_id"] for item in agent.history if item["type"] == "function_call_output")
            assert answers <= calls, f"{answers - calls} of {agent.path}: answered twice"

    def stored_chain(self):
        by_id = {stored.id: stored for stored in self.site.store.appended}
        return [by_id[link.response["id"]] for link in self.chain]


def is_end(frame):
    return frame["type"] in ("response.completed", "response.incomplete", "response.failed", "error")


def is_known(answer):
    """Whether an answer or event tells of no fault of the gateway's own."""
    return "internal error" not in json.dumps(answer)


def read_call(frame):
    """The id that an event of the end of an item asks the client for."""
    return asked_in(frame["item"]) if frame["type"] == "response.output_item.done" else None


def asked_in(item):
    """The id of a call that a client has to answer, or of one that it has to approve."""
    return (
        item["call_id"] if item["type"] == "function_call" else item["id"] if item["id"].startswith("mcpr_") else None
    )


def answered_in(item):
    """The id that an item of a client's answers."""
    return item.get("call_id") or item.get("approval_request_id")


async def until(client, start, found):
    """Wait for a frame behind the first ones, and return it."""
    while (frame := next((frame for frame in client.socket.frames[start:] if found(frame)), None)) is None:
        await client.socket.arrival()
    return frame


def is_answer(frame):
    return frame["type"].startswith("response.inject.")


def is_shown(item):
    """Whether the client saw it as it is in a history: not what its user said, nor calls of the gateway's tools."""
    return not (item["type"] == "message" and item["role"] != "assistant") and not str(item.get("name")).startswith(
        "mcp__"
    )


def show(item):
    """An item in short, the same in a response and in a stored history."""
    match item["type"]:
        case "agent_message":
            payload = item.get("payload")
            if payload is None:
                payload = json.loads(item["content"][0]["encrypted_content"])[3]
            return ("agent_message", item["author"], item["recipient"], payload)
        case "function_call" | "multi_agent_call":
            return (item["type"], item["call_id"], item.get("action") or item["name"])
    return (item["type"], item["id"], "".join(part["text"] for part in item["content"] or []))


def text_of(item):
    """The text of an action's output."""
    return item["output"] if isinstance(item["output"], str) else "".join(part["text"] for part in item["output"])
