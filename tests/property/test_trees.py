"""Inferences of three agents in one response, their events in any order, with what they ask of each other."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st
from property.engine import Client, Json, completed, cutters, items, spell, styles, texts, without_ids
from property.trees import ALPHA, BETA, ROOT, mail, retained, tree_client, tree_faults

from gateway.protocol.agents.action_slots import ActionSlot
from gateway.protocol.agents.actions import ACTIONS
from gateway.protocol.agents.round_history import list_calls, recall_agent_round
from gateway.protocol.errors import ResourceLimitExceeded
from gateway.protocol.ledger import text_bytes

AGENTS = (ROOT, ALPHA, BETA)

written = st.one_of(
    texts,
    st.dictionaries(st.sampled_from(["message", "target", "task_name"]), st.one_of(texts, st.integers())).map(
        json.dumps
    ),
)
actions = st.builds(
    lambda name, call_id, arguments: {
        "type": "function_call",
        "call_id": call_id,
        "name": name,
        "arguments": arguments,
    },
    st.sampled_from(ACTIONS),
    st.sampled_from(["call_a", "call_b"]),
    written,
)


@dataclass
class Agent:
    """What one agent's engine says in its rounds, and where it is interrupted.

    Attributes:
        path: of the agent.
        rounds: the events of each.
        cut: the step before which its round is interrupted, None for never.
        kept: bytes of arguments that are kept beside those shown.
    """

    path: str
    rounds: list[list[Json]]
    cut: int | None = None
    kept: int = 0
    waits: list[tuple[str, str]] = field(default_factory=list)

    def run(self, client: Client) -> Iterator[None]:
        """Do one step at a time: take an event, or carry out an action."""
        step = 0
        for events in self.rounds:
            round_ = client.turn.open_round(self.path)
            for event in events:
                if step == self.cut:
                    client.hear(client.turn.drop_open(round_))
                    break
                step += 1
                client.ingest(round_, event)
                yield
            for slot in round_.slots:
                if isinstance(slot, ActionSlot):
                    self._conclude(client, round_, slot)
                    yield
            assert len(list_calls(round_.slots)) <= len(recall_agent_round(round_.slots))
        for call_id, action in self.waits:
            client.hear(client.turn.tell_action_output(self.path, call_id, action, "late"))
            yield

    def _conclude(self, client: Client, round_, slot: ActionSlot) -> None:
        waits = slot.action == "wait_agent"
        messages = [mail(self.path, BETA, slot.arguments)] if slot.action == "spawn_agent" else []
        client.hear(client.turn.conclude_action(round_, slot, None if waits else "{}", messages))
        if waits:
            self.waits.append((slot.call_id, slot.action))
        if slot.render("completed")["arguments"] != slot.arguments:
            self.kept += text_bytes(slot.arguments)


@st.composite
def agents(draw: st.DrawFn, path: str, cut: st.SearchStrategy[int | None]) -> Agent:
    rounds = []
    for number in range(draw(st.integers(1, 2))):
        style, cutter, tag = draw(styles), draw(cutters()), f"{path}{number}"
        said = draw(st.lists(st.one_of(items, actions), max_size=3))
        end = draw(st.sampled_from(["completed", "completed", "incomplete"])) if path != ROOT else "completed"
        events = [event for index, item in enumerate(said) for event in spell(item, index, cutter, style, tag)]
        rounds.append([*events, completed(status=end)])
    return Agent(path, rounds, draw(cut))


def trees(cut: st.SearchStrategy[int | None]) -> st.SearchStrategy[tuple[list[Agent], list[int]]]:
    """Three agents, and which of them goes on at each step."""
    return st.tuples(
        st.tuples(*(agents(path, cut) for path in AGENTS)).map(list), st.lists(st.integers(0, 2), max_size=60)
    )


def run(drawn: tuple[list[Agent], list[int]], limit: int = 1 << 30) -> Client:
    spoken, order = drawn
    client = tree_client(limit)
    left = [agent.run(client) for agent in spoken]
    for number in order:
        if left:
            at = number % len(left)
            with contextlib.suppress(ResourceLimitExceeded):
                if next(left[at], left) is left:
                    del left[at]
        assert client.turn.ledger.total <= limit
    for each in left:
        with contextlib.suppress(ResourceLimitExceeded):
            for _ in each:
                pass
    assert client.turn.ledger.total <= limit
    return client


def owned(client: Client, path: str) -> list[Json]:
    """What an agent said, without ids."""
    mine = [item for item in client.output if item["agent"]["agent_name"] == path and item["type"] != "agent_message"]
    return [without_ids({name: each for name, each in item.items() if name not in ("id", "call_id")}) for item in mine]


@given(trees(st.none()))
def test_rounds_of_three_agents_share_one_response_and_keep_the_rules(drawn):
    client = run(drawn).finish()
    assert tree_faults(client.told) == []
    assert client.turn.ledger.total == retained(client.output) + sum(agent.kept for agent in drawn[0])
    for agent in drawn[0]:
        alone = run(([Agent(agent.path, agent.rounds)], [])).finish()
        assert owned(client, agent.path) == owned(alone, agent.path)


@given(trees(st.one_of(st.none(), st.integers(0, 12))))
def test_interrupts_leave_whole_items_only(drawn):
    client = run(drawn).finish()
    assert tree_faults(client.told, whole=False) == []
    assert client.turn.ledger.total == retained(client.output) + sum(agent.kept for agent in drawn[0])


@given(trees(st.none()), st.integers(0, 4000))
def test_three_agents_never_pass_the_limit_together(drawn, limit):
    run(drawn, limit)
