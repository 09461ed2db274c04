"""Agents that do anything at all, and a client that does: what they do follows from one source of chance."""

import asyncio
import json

from agents.site import Site, output
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

from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.tree import Tree

MOST_AGENTS = 11
MOST_INFERENCES = 70
THRESHOLD = 50_000
LONG = "many words " * 40
NAMES = ("a", "b", "c")
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
            steps.insert(random.randint(0, len(steps)), random.choice((say("Well."), think("hm"), self.ask())))
        return steps

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


class Life:
    """A chain of responses on one gateway, and a client that answers calls as it likes.

    Attributes:
        chain: what is stored, oldest first: the input, and the response.
    """

    def __init__(self, random):
        self.random = random
        self.limit = random.choice((1, 3, 5, MOST_AGENTS))
        self.models = Models(random, self.limit)
        self.site = Site(
            server=self.models.upstream,
            multi_agent={
                "max_agents_total": MOST_AGENTS,
                "wait_max_ms": 60_000,
                "wait_min_ms": 1000,
                "max_mailbox_entries": 5,
                "run_deadline_s": 10**6,
            },
        )
        self.chain = []
        self.known_calls = {}
        self.answered = set()

    async def live(self):
        """Make a few responses; raises AssertionError for whatever must not be."""
        for _ in range(3):
            transport = self.random.choice(("json", "sse", "websocket", "websocket"))
            response = await (self.converse() if transport == "websocket" else self.ask(transport))
            self.site.assert_at_rest()
            assert not self.models.faults, self.models.faults
            if response is None or response["status"] == "failed":
                continue
            self.check_stored()

    def request(self):
        """What is sent: a message, and all outputs that may be waited for."""
        given = [{"type": "message", "role": "user", "content": "Go on."}]
        given += [output(call_id, "late") for call_id in self.pending()]
        fields = {
            "input": given,
            "multi_agent": {"enabled": True, "max_concurrent_subagents": self.limit},
            "context_management": [{"type": "compaction", "compact_threshold": THRESHOLD}],
        }
        if self.chain:
            fields["previous_response_id"] = self.chain[-1][1]["id"]
        return fields

    def pending(self):
        """Calls of the chain without an output."""
        return [call_id for call_id in self.known_calls if call_id not in self.answered]

    def note(self, given, response, injected=()):
        """Remember a response that was stored."""
        self.chain.append((given, response))
        self.answered |= {item["call_id"] for item in given if "call_id" in item}
        for item in response["output"]:
            if item["type"] == "function_call":
                self.known_calls[item["call_id"]] = item["agent"]["agent_name"]
        self.answered |= set(injected)

    async def ask(self, transport):
        fields = self.request()
        if transport == "json":
            request = self.site.request(**fields)
            await request.serve(self.site.endpoint)
            assert request.status in (200, 500, 502), request.json
            response = request.json if request.status == 200 else None
        else:
            events = await self.site.stream(**fields)
            assert check_run(events, dropped=True) == []
            response = events[-1].get("response")
        if response is not None and response["status"] != "failed":
            self.note(fields["input"], response)
        return response

    async def converse(self):
        """On a WebSocket, where the client injects what it likes, and may leave at any time."""
        fields = self.request()
        async with self.site.connect() as client:
            client.create(**fields)
            injecting = asyncio.create_task(self.inject(client))
            leaves = self.random.random() < 0.15
            ending = asyncio.create_task(client.ended())
            try:
                if leaves:
                    await asyncio.wait([ending], timeout=self.random.choice((0, 0.01, 1, 30)))
                    if not ending.done():
                        client.socket.leave()
                        await client.task
                        return self.left(client, fields)
                await ending
                sent = await injecting
                while sum(is_answer(frame) for frame in client.socket.frames) < len(sent):
                    await client.socket.arrival()
            finally:
                injecting.cancel()
                ending.cancel()
                await asyncio.wait([injecting, ending])
            frames = list(client.socket.frames)
        if frames[0]["type"] == "error":
            # The first inference of all was refused.
            return None
        assert check_run(frames, sent, dropped=True) == []
        response = next(frame["response"] for frame in frames if "response" in frame and is_end(frame))
        if response["status"] != "failed":
            answers = [frame for frame in frames if is_answer(frame)]
            taken = [
                item["call_id"]
                for batch, answer in zip(sent, answers, strict=True)
                if answer["type"].endswith("created")
                for item in batch["input"]
            ]
            assert len(set(taken)) == len(taken), "an output was taken twice"
            self.note(fields["input"], response, taken)
        return response

    def left(self, client, fields):
        """The client has gone: nothing is stored, or all of it was before."""
        begun = [frame["response"]["id"] for frame in client.socket.frames if frame["type"] == "response.created"]
        assert not [response for response in self.site.store.appended if response.id in begun]
        assert "input" in fields

    async def inject(self, client):
        """Answer calls one by one, several at once, twice, and some that nobody made; returns what was sent."""
        random, sent, seen = self.random, [], 0
        begun = await client.until(lambda frame: True)
        if begun["type"] == "error":
            return sent
        response_id = begun["response"]["id"]
        while True:
            calls = [item["call_id"] for item in client.items("function_call")]
            ended = any(is_end(frame) for frame in client.socket.frames)
            if ended and random.random() < 0.8:
                return sent
            if len(calls) > seen or ended:
                seen = len(calls)
                await asyncio.sleep(random.choice((0, 0, 0.1, 0.3, 5)))
                batch = random.sample(calls, random.randint(0, min(2, len(calls))))
                if random.random() < 0.1:
                    batch.append("call_unknown")
                sent.append({"input": [output(call_id, "injected") for call_id in batch]})
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
        told = [item for _, response in self.chain for item in response["output"]]
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
        given = [item["call_id"] for items, _ in self.chain for item in items if "call_id" in item]
        for call_id in given:
            answers = [
                item
                for agent in tree.agents.values()
                if self.known_calls.get(call_id) == agent.path
                for item in agent.history
                if item.get("call_id") == call_id and item["type"] == "function_call_output"
            ]
            assert len(answers) <= 1, f"{call_id} is answered twice"

    def stored_chain(self):
        by_id = {stored.id: stored for stored in self.site.store.appended}
        return [by_id[response["id"]] for _, response in self.chain]


def is_end(frame):
    return frame["type"] in ("response.completed", "response.incomplete", "response.failed")


def is_answer(frame):
    return frame["type"].startswith("response.inject.")


def is_shown(item):
    """Whether the client saw it as an item of the agent's: not what its user said."""
    return item["type"] != "message" or item["role"] == "assistant"


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
