"""Agents that do anything at all, in any order, and a driver that checks what must hold all the time."""

import json
from collections import defaultdict
from collections.abc import Sequence

from protocol.agents.stage import action, describe, function, message, output, user

from gateway.protocol import codec
from gateway.protocol.agents.agent import Agent, Call, Errored, Phase
from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.history import recall_agents
from gateway.protocol.agents.mail import Mail, MailKind
from gateway.protocol.agents.stored import StoredAgent
from gateway.protocol.agents.tree import Tree

BOUNDS = Bounds(max_concurrent=4, max_agents_total=11, max_depth=3, max_mailbox_entries=3, max_rounds_per_activation=99)
NAMES = "abcd"


class Chaos:
    """Runs responses of one chain as a script of small numbers says; without a script everything comes to its end.

    A round's actions are carried out one by one, with anything in between.
    """

    def __init__(self, script: Sequence[int]) -> None:
        self.script = list(reversed(script))
        self.rows: list[StoredAgent] = []
        self.tree = Tree(BOUNDS)
        self.now = 0.0
        self.count = 0
        self.todo: dict[str, list[tuple[str, str, str]]] = {}
        self.text: dict[str, str | None] = {}
        self.covered: dict[str, int] = {}
        self.outputs: dict[str, int] = defaultdict(int)
        self.sent: dict[tuple[str, bool], list[str]] = defaultdict(list)
        self.delivered: dict[tuple[str, bool], list[str]] = defaultdict(list)

    # ------------------------------------------------------------ the script

    def pick(self, most: int) -> int:
        """Return a number below `most`, 0 once the script has ended."""
        return self.script.pop() % most if self.script else 0

    def name(self, word: str) -> str:
        """Return a word that was never there before."""
        self.count += 1
        return f"{word}{self.count}"

    # ------------------------------------------------------------ responses

    def run(self, responses: int) -> None:
        """Run responses until the script has ended, at least some."""
        while responses > 0 or self.script:
            responses -= 1
            self.ask()
            left = len(self.script)
            steps = 0
            while not self.is_over():
                self.step()
                self.check()
                # A script decides so many steps at most; after it every agent answers at its next round.
                steps += 1
                assert steps < 200 + 10 * left
            self.finish()

    def ask(self) -> None:
        """Begin a response that answers all it must, and perhaps more."""
        self.tree.is_live = bool(self.pick(2))
        given = []
        for agent in self.tree.agents.values():
            given += [output(call.call_id, self.name("out")) for call in agent.client_calls]
            given += [output(call_id, self.name("late")) for call_id in agent.late if self.pick(2)]
        if not given or self.pick(2):
            given.insert(self.pick(len(given) + 1), user(self.name("ask")))
        self.tree.take_input(given)

    def is_over(self) -> bool:
        """End what is over; tell whether the response is."""
        for wait in self.tree.resolve_waits(self.now):
            self.outputs[wait.call_id] += 1
        if not self.tree.is_quiescent or self.tree.revive_root():
            return False
        return not (self.tree.is_live and self.tree.has_pending_calls and self.pick(2) and self.inject())

    def finish(self) -> None:
        """Store the tree and go on with what was stored."""
        self.deliver(self.tree.flush_mail())
        assert all(mail.kind is MailKind.NEW_TASK for agent in self.tree.agents.values() for mail in agent.mailbox)
        for agent in self.tree.agents.values():
            for item in agent.history:
                if item["type"] == "multi_agent_call" and item["id"] == agent.path:
                    assert self.outputs[item["call_id"]] == 1
        self.rows += self.tree.snapshot()
        restored = Tree.restore(self.rows, BOUNDS)
        assert describe(restored) == describe(self.tree)
        assert restored.snapshot() == []
        self.tree = restored

    # ------------------------------------------------------------ steps

    def step(self) -> None:
        """Let one agent do something, or a client, or time."""
        workers = [
            agent
            for agent in self.tree.agents.values()
            if agent.phase in (Phase.RUNNABLE, Phase.INFERRING, Phase.ACTING, Phase.COMPACTING)
        ]
        if workers and not (self.pick(8) == 1 and self.wait_or_inject()):
            self.work(workers[self.pick(len(workers))])
        elif not workers:
            # Nobody is at work, and it is not over: there must be time to wait for, or a client gave some outputs.
            assert self.wait_or_inject() or self.tree.is_quiescent

    def wait_or_inject(self) -> bool:
        """Let a client answer, or time pass to the next deadline; tell whether anything happened."""
        if self.tree.is_live and self.pick(2) and self.inject():
            return True
        deadline = self.tree.next_deadline()
        if deadline is not None:
            self.now = max(self.now, deadline)
        return deadline is not None

    def inject(self) -> bool:
        """Answer some of the calls that may be answered, if there are any."""
        ids = [call_id for agent in self.tree.agents.values() for call_id in (*agent.late, *self.client_calls(agent))]
        chosen = [call_id for call_id in ids if self.pick(2)]
        given = [output(call_id, self.name("in")) for call_id in chosen]
        if given:
            assert self.tree.check_outputs(given, "resp") is None
            self.tree.take_outputs(given)
            assert self.tree.check_outputs(given[:1], "resp") is not None
        return bool(given)

    def client_calls(self, agent: Agent) -> list[str]:
        """Return ids of client calls that the client has been told of."""
        return [call.call_id for call in agent.client_calls]

    def work(self, agent: Agent) -> None:
        """Let one agent do its next thing."""
        match agent.phase:
            case Phase.RUNNABLE if self.pick(6) == 1:
                self.covered[agent.path] = self.tree.begin_compaction(agent)
            case Phase.RUNNABLE:
                self.deliver(self.tree.enter(agent))
                if self.pick(6) == 1:
                    self.covered[agent.path] = self.tree.begin_compaction(agent)
                else:
                    self.begin(agent)
            case Phase.COMPACTING:
                covered = self.covered.pop(agent.path)
                # An interrupt may come first; a summary is made of what it covers.
                note = [{"type": "compaction", "encrypted_content": self.name("note")}]
                self.tree.end_compaction(agent, None if self.pick(3) == 1 else note, covered)
                if agent.phase is Phase.INFERRING:
                    self.begin(agent)
            case Phase.INFERRING if agent.interrupting:
                self.cut(agent)
            case Phase.INFERRING if agent.parent and self.pick(9) == 1:
                reason = self.name("why")
                self.expect(agent.parent, f"[agent failed] {reason}")
                self.tree.fail(agent, reason)
            case Phase.INFERRING:
                self.infer(agent)
            case _:
                self.carry_out(agent)

    def begin(self, agent: Agent) -> None:
        """Begin an inference."""
        self.tree.begin_inference(agent)
        self.check_shown(agent)

    def cut(self, agent: Agent) -> None:
        """End an inference that was cut, perhaps behind a call."""
        call_id = self.name("call_")
        if self.pick(2):
            self.tree.end_round(agent, [function(call_id)], [Call(call_id=call_id, kind="client")])
        self.tree.interrupt(agent)

    def infer(self, agent: Agent) -> None:
        """End a round with up to three calls, or with an answer."""
        words = [self.pick(10) for _ in range(self.pick(4))]
        items, calls, todo = [], [], []
        for word in words:
            call_id = self.name("call_")
            name, arguments = self.choose(agent, word)
            if name == "T":
                items.append(function(call_id))
                calls.append(Call(call_id=call_id, kind="client"))
            elif name == "G":
                calls.append(Call(call_id=call_id, kind="gateway"))
                todo.append((call_id, name, arguments))
            else:
                items.append({**action(call_id, name, arguments), "id": agent.path})
                calls.append(Call(call_id=call_id, kind="action"))
                todo.append((call_id, name, arguments))
        self.text[agent.path] = None
        if not calls and self.pick(7) != 1:
            self.text[agent.path] = self.name("answer")
            items.append(message(str(self.text[agent.path])))
        self.tree.end_round(agent, items, calls)
        self.todo[agent.path] = todo

    def choose(self, agent: Agent, word: int) -> tuple[str, str]:
        """Return a call: of the client's tool, of the gateway's, or an action with arguments of some kind."""
        paths = list(self.tree.agents)
        target = paths[self.pick(len(paths))]
        given: dict[str, object]
        match word:
            case 0 | 1:
                name, given = "spawn_agent", {"task_name": NAMES[self.pick(4)], "message": self.name("task")}
                given["fork_turns"] = ("none", "all", "1", "zero")[self.pick(4)]
            case 2:
                name, given = "send_message", {"target": target, "message": self.name("mail")}
            case 3:
                name, given = "followup_task", {"target": target, "message": self.name("task")}
            case 4 | 5:
                name, given = "wait_agent", {"timeout_ms": self.pick(5) * 10_000}
            case 6:
                name, given = "interrupt_agent", {"target": target}
            case 7:
                name, given = "list_agents", {}
            case 8:
                name, given = "G", {}
            case _:
                name, given = "T", {}
        return name, json.dumps(given)

    def carry_out(self, agent: Agent) -> None:
        """Carry out the next action of a round, or end the round."""
        todo = self.todo[agent.path]
        if not todo:
            answers = self.text[agent.path] is not None and not agent.interrupting
            if answers and agent.parent:
                self.expect(agent.parent, str(self.text[agent.path]))
            empty = agent.empty_rounds
            parent, fails = agent.parent, not answers and empty == 2 and not agent.kept.had_calls
            if fails and not agent.interrupting and parent:
                self.expect(parent, "[agent failed] it wrote neither an answer nor a call")
            self.tree.settle(agent, self.text[agent.path])
            return
        call_id, name, arguments = todo.pop(0)
        if name == "G":
            self.tree.answer_gateway_call(agent, [function(call_id, name), output(call_id)])
            return
        before = len(self.tree.agents)
        outcome = self.tree.act(agent, call_id, name, arguments, self.now)
        assert (outcome.spawned is not None) == (len(self.tree.agents) > before)
        if outcome.output is not None:
            self.outputs[call_id] += 1
        given = json.loads(arguments)
        if name in ("spawn_agent", "send_message", "followup_task") and "error" not in str(outcome.output):
            path = outcome.spawned or given["target"]
            self.sent[path, name != "send_message"].append(given["message"])
        self.deliver(outcome.delivered)

    # ------------------------------------------------------------ what must hold

    def expect(self, recipient: str, payload: str) -> None:
        """Note mail that the tree is about to send by itself."""
        self.sent[recipient, False].append(payload)

    def deliver(self, mails: Sequence[Mail]) -> None:
        """Note mail that was delivered: once, and in the order in which it was sent."""
        for mail in mails:
            key = (mail.recipient, mail.kind is MailKind.NEW_TASK)
            self.delivered[key].append(mail.payload)
            assert self.delivered[key] == self.sent[key][: len(self.delivered[key])]

    def check_shown(self, agent: Agent) -> None:
        """Check that a model is shown each call with its output, and nothing that only the gateway knows."""
        shown = recall_agents(agent.history)
        calls = [at for at, item in enumerate(shown) if item["type"] == "function_call"]
        assert [shown[at]["call_id"] for at in calls] == [shown[at + 1]["call_id"] for at in calls]
        assert {item["type"] for item in shown} <= {"message", "function_call", "function_call_output", "compaction"}

    def check(self) -> None:
        """Check what holds after every step."""
        tree = self.tree
        assert tree.active <= BOUNDS.max_concurrent
        assert len(tree.agents) <= 12
        assert max(self.outputs.values(), default=0) <= 1
        mails = [mail for agent in tree.agents.values() for mail in agent.mailbox]
        items = [item for agent in tree.agents.values() for item in agent.history]
        assert tree.size == sum(len(codec.encode(item)) for item in (*items, *(mail.to_item() for mail in mails)))
        for key in self.sent:
            waiting = [mail.payload for mail in mails if (mail.recipient, mail.kind is MailKind.NEW_TASK) == key]
            assert self.delivered[key] + waiting == self.sent[key]
        for agent in tree.agents.values():
            assert agent.is_idle or not isinstance(agent.status, Errored)
            assert not (agent.is_idle and (agent.calls or agent.wait or agent.has_task or agent.interrupting))
