"""Creates, steers and ends in any order, over several lanes: each steer has one fate, and its client hears of it."""

import json
from random import Random

import pytest
from engine.doubles import Bench, settle
from harness.agents import AgentUpstream, call, cut, fail, gate, say, think
from transport.client_socket import converse, until

LANES = (None, "a")
F = {"type": "function", "name": "f", "parameters": {}}
STEPS = 40


class Schedule:
    """One connection, and a client that does anything at any time.

    Attributes:
        inputs: the new input of each response that was prepared, by its id.
        sent: every steer, by its text.
    """

    def __init__(self, seed):
        self.random = Random(seed)
        self.played = AgentUpstream(decide=self.decide)
        self.bench = Bench(played=self.played)
        self.gates = []
        self.inputs = {}
        self.sent = {}
        self.prepare, self.bench.engine.prepare = self.bench.engine.prepare, self.note_plan

    async def note_plan(self, *arguments):
        plan = await self.prepare(*arguments)
        self.inputs[plan.response_id] = plan.inputs
        return plan

    def decide(self, asked):
        name = f"gate {asked.number}"
        self.gates.append(name)
        match self.random.choice(("say", "say", "call", "call", "break", "refuse")):
            case "say":
                return [say("Well, ", "well, ", gate(name), "yes, ", "yes.")]
            case "call":
                return [think("Hm."), gate(name), call("f", {}, id=f"call_{asked.number}")]
            case "break":
                return [say("Well, ", gate(name), "no."), cut("connection")]
            case _:
                return [gate(name), fail(503)]

    # ------------------------------------------------------------ what the client does

    def step(self, talk):
        known = [(frame["response"]["id"], frame.get("stream_id")) for frame in created(talk)]
        match self.random.choice(("create", "steer", "steer", "steer", "release", "release", "pause", "resume")):
            case "create":
                self.create(talk, known)
            case "steer" if known:
                text = f"steer {len(self.sent)}"
                self.sent[text] = target = self.random.choice(known[-4:])[0]
                talk.socket.say({"type": "response.steer", "previous_response_id": target, "input": text})
            case "release" if self.gates:
                self.played.release(self.gates.pop(self.random.randrange(len(self.gates))))
            case "pause" if not talk.socket.write_paused:
                talk.socket.pause()
            case "resume" if talk.socket.write_paused:
                talk.socket.resume()

    def create(self, talk, known):
        lane = self.random.choice(LANES)
        body = {"input": "hi"}
        mine = [response_id for response_id, on in known if on == lane]
        if mine and self.random.random() < 0.7:
            body = {"previous_response_id": mine[-1], "input": self.answer(talk, mine[-1])}
        talk.create(lane=lane, tools=[F], **body)

    def answer(self, talk, response_id):
        """Outputs for what the response asks for, if it has ended; sometimes they are forgotten."""
        ends = [f["response"] for f in talk.socket.frames if f["type"] == "response.completed"]
        output = next((response["output"] for response in ends if response["id"] == response_id), [])
        calls = [item["call_id"] for item in output if item["type"] == "function_call"]
        if not calls or self.random.random() < 0.2:
            return "more"
        return [{"type": "function_call_output", "call_id": call_id, "output": "x"} for call_id in calls]

    async def finish(self, talk):
        """Let everything come to its end."""
        if talk.socket.write_paused:
            talk.socket.resume()
        while not (talk.connection._scheduler.idle and talk.connection._controls.idle):
            while self.gates:
                self.played.release(self.gates.pop())
            await settle(3)

    # ------------------------------------------------------------ what became of the steers

    def applied(self, talk):
        """The texts of the steers each told response begins with, by its id."""
        began = {frame["response"]["id"]: frame["response"]["previous_response_id"] for frame in created(talk)}
        found = {}
        for response_id, parent in began.items():
            texts = [text for item in self.inputs[response_id] if (text := text_of(item)) in self.sent]
            found[response_id] = texts
            assert texts == sorted(texts, key=lambda text: int(text.split()[1])), "in the order they were sent"
            assert {self.sent[text] for text in texts} <= {parent}
            assert [text_of(item) for item in self.inputs[response_id]][: len(texts)] == texts, "before all other input"
        return found


def text_of(item):
    content = item.get("content") or [{}]
    return content if isinstance(content, str) else content[0].get("text")


def created(talk):
    return [frame for frame in talk.socket.frames if frame["type"] == "response.created"]


@pytest.mark.agents(98, 99, 101, 102, 106, 107)
@pytest.mark.parametrize("seed", range(25))
async def test_each_steer_has_one_fate(seed, caplog):
    schedule = Schedule(seed)
    async with converse(schedule.bench, evict_parent_on_failure="never", delivery_max_batches=2) as talk:
        await settle()
        for _ in range(STEPS):
            schedule.step(talk)
            await settle(schedule.random.choice((0, 1, 5)))
        await until(talk.socket._messages.empty)
        await schedule.finish(talk)
        assert "a run failed unexpectedly" not in caplog.messages
        frames = talk.socket.frames
        accepted = [frame["steer"]["id"] for frame in frames if frame["type"] == "response.steer.accepted"]
        failed = [frame["steer"] for frame in frames if frame["type"] == "response.steer.failed"]
        refused = [steer["input"] for steer in failed if "id" not in steer]
        lost = [steer["input"] for steer in failed if "id" in steer]
        waiting = [steer.given for route in talk.connection._controls.routes for steer in route.steers.waiting]
        applied = [text for texts in schedule.applied(talk).values() for text in texts]
        assert sorted([*refused, *lost, *waiting, *applied]) == sorted(schedule.sent)
        assert len(accepted) == len(set(accepted)) == len(schedule.sent) - len(refused)
        pending = [json.dumps(frame["steer"]) for frame in frames if frame["type"] == "response.steer.pending"]
        assert len(pending) == len(set(pending)), "each is told of once"
        for response in {frame["response"]["id"] for frame in created(talk)}:
            numbers = [frame["sequence_number"] for frame in frames if belongs(frame, response)]
            assert numbers == sorted(set(numbers))


def belongs(frame, response_id):
    """Whether an event names the response; items do not."""
    named = frame.get("response", {}).get("id") or frame.get("steer", {}).get("previous_response_id")
    return named == response_id and "sequence_number" in frame
