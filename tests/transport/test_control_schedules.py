"""Injects in any order, right and wrong, while agents work and end: each has one answer, and where it belongs."""

from random import Random

import pytest
from engine.agents.bench import ROOT, TOOL, TreeBench
from engine.doubles import settle
from harness.agents import AgentUpstream, call, gate, say, spawn, wait
from transport.client_socket import converse

HEADERS = [(b"openai-beta", b"responses_multi_agent=v1")]
CHILDREN = ("alpha", "beta")
TERMINAL = "response.completed"


class Schedule:
    """One connection with two responses of several agents, and a client that injects at any time.

    Attributes:
        sent: the text of each output that was sent, by the id of its response.
    """

    def __init__(self, seed):
        self.random = Random(seed)
        self.bench = TreeBench({}, agents={"quiescence_grace_ms": 1, "wait_min_ms": 1})
        self.played: AgentUpstream = self.bench.played
        self.played.decide = self.decide
        self.gates = []
        self.calls = 0
        self.sent = {}

    def decide(self, asked):
        if asked.path == ROOT:
            first = len(asked.body["input"]) == 1
            return [*(spawn(name) for name in CHILDREN), wait(20)] if first else [say("done")]
        name = f"gate {len(self.played.asked)}"
        self.gates.append(name)
        if self.calls < 10 and self.random.random() < 0.8:
            self.calls += 1
            held = [gate(name)] if self.random.random() < 0.5 else []
            return [*held, *(call("get_proposal", {}, id=f"c{self.calls}_{n}") for n in range(2))]
        return [say("Hm, ", gate(name), "yes.")]

    def step(self, talk):
        match self.random.choice(("inject", "inject", "inject", "release", "release", "pause", "resume")):
            case "inject":
                self.inject(talk)
            case "release" if self.gates:
                self.played.release(self.gates.pop(self.random.randrange(len(self.gates))))
            case "pause" if not talk.socket.write_paused:
                talk.socket.pause()
            case "resume" if talk.socket.write_paused:
                talk.socket.resume()

    def inject(self, talk):
        began = [frame["response"]["id"] for frame in talk.socket.frames if frame["type"] == "response.created"]
        if not began:
            return
        target = self.random.choice([*began, *began, "resp_nobody"])
        lane = next((f.get("stream_id") for f in talk.socket.frames if f.get("response", {}).get("id") == target), None)
        told = [f["item"]["call_id"] for f in talk.on(lane) if is_call(f)]
        if not told and self.random.random() < 0.8:
            return
        picked = [self.random.choice(told[-4:] or ["nobody"])]
        if self.random.random() < 0.2:
            picked.append(self.random.choice([*told, "nobody"]))
        sent = self.sent.setdefault(target, [])
        sent.append(f"{target} {len(sent)}")
        items = [{"type": "function_call_output", "call_id": call_id, "output": sent[-1]} for call_id in picked]
        talk.socket.say({"type": "response.inject", "response_id": target, "input": items})

    async def finish(self, talk):
        if talk.socket.write_paused:
            talk.socket.resume()
        while not (talk.connection._scheduler.idle and talk.connection._controls.idle):
            while self.gates:
                self.played.release(self.gates.pop())
            await settle(3)


def is_call(frame):
    return frame["type"] == "response.output_item.done" and frame["item"]["type"] == "function_call"


def expect_answers(talk, sent):
    """Every inject has one answer, in the order in which they were sent."""
    for target, texts in sent.items():
        answers = [f for f in talk.socket.frames if f.get("response_id") == target]
        assert len(answers) == len(texts)
        left = list(texts)
        for frame in answers:
            text = left.pop(0)
            if frame["type"] == "response.inject.failed":
                assert {item["output"] for item in frame["input"]} == {text}, "answered in the order of sending"
        if target == "resp_nobody":
            assert [frame["sequence_number"] for frame in answers] == list(range(len(texts)))


def expect_lane(frames):
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    (end,) = [at for at, frame in enumerate(frames) if frame["type"] == TERMINAL]
    for at, frame in enumerate(frames):
        if frame["type"] == "response.inject.created":
            assert at < end
        elif frame["type"] == "response.inject.failed":
            assert (frame["error"]["code"] == "response_already_completed") is (at > end)


@pytest.mark.agents(66, 69, 72, 81, 82)
@pytest.mark.parametrize("seed", range(15))
async def test_each_inject_has_one_answer(seed, caplog):
    schedule = Schedule(seed)
    async with converse(schedule.bench, headers=HEADERS, delivery_max_batches=4) as talk:
        for lane in ("a", "b"):
            talk.create(lane=lane, multi_agent={"enabled": True}, tools=[TOOL])
            await talk.begun(lane)
        for _ in range(40):
            schedule.step(talk)
            await settle(schedule.random.choice((0, 3, 20)))
        await settle()
        await schedule.finish(talk)
        for _ in range(3):
            schedule.inject(talk)
        await settle()
        await schedule.finish(talk)
        for lane in ("a", "b"):
            expect_lane(talk.on(lane))
        expect_answers(talk, schedule.sent)
        assert schedule.played.overrun == []
        assert "a run failed unexpectedly" not in caplog.messages
