"""Two inferences in one response, their events in any order."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.engine import Client, completed, cutters, items, make_turn, play, spell, styles, without_ids

from gateway.protocol.errors import ResourceLimitExceeded

said = st.lists(items, max_size=3)


@st.composite
def interleavings(draw: st.DrawFn):
    """Two spellings and the order in which their events arrive: 0 and 1 name the round that speaks next."""
    rounds = [draw(said), draw(said)]
    spoken = []
    for tag, items_said in zip("ab", rounds, strict=True):
        style, cut = draw(styles), draw(cutters())
        events = [event for index, item in enumerate(items_said) for event in spell(item, index, cut, style, tag)]
        spoken.append([*events, completed()])
    turns = [number for number, events in enumerate(spoken) for _ in events]
    return rounds, spoken, draw(st.permutations(turns))


@given(interleavings())
@pytest.mark.checklist(601)
def test_two_rounds_share_one_response_and_keep_the_rules(drawn):
    said_by, spoken, order = drawn
    client = Client()
    rounds = [client.turn.open_round("/root"), client.turn.open_round("/root/helper")]
    queues = [iter(events) for events in spoken]
    owner: dict[str, int] = {}
    for number in order:
        heard = len(client.told)
        client.ingest(rounds[number], next(queues[number]))
        owner |= {e["item"]["id"]: number for e in client.told[heard:] if e["type"].endswith("item.added")}
    client.finish()

    assert client.faults(max_open_items=2) == []
    assert all(round_.ended for round_ in rounds)
    for number, items_said in enumerate(said_by):
        # Call ids are one namespace of the whole response, so only what was said can be compared.
        mine = [item for item in client.output if owner[item["id"]] == number]
        alone = play(items_said).output
        assert [_content(item) for item in mine] == [_content(item) for item in alone]


@given(interleavings(), st.integers(0, 1500))
@pytest.mark.checklist(606)
def test_two_rounds_never_pass_the_limit_together(drawn, limit):
    _, spoken, order = drawn
    client = Client(make_turn(limit))
    rounds = [client.turn.open_round(), client.turn.open_round()]
    queues = [iter(events) for events in spoken]
    for number in order:
        with contextlib.suppress(ResourceLimitExceeded):
            client.ingest(rounds[number], next(queues[number]))
        assert client.turn.ledger.total <= limit


@given(interleavings())
@pytest.mark.checklist(609)
def test_call_ids_stay_unique_across_rounds(drawn):
    _, spoken, order = drawn
    client = Client()
    rounds = [client.turn.open_round(), client.turn.open_round()]
    queues = [iter(events) for events in spoken]
    for number in order:
        client.ingest(rounds[number], next(queues[number]))
    client.finish()
    call_ids = [item["call_id"] for item in client.output if "call_id" in item]
    assert len(call_ids) == len(set(call_ids))
    assert all(0 < len(call_id) <= 64 for call_id in call_ids)


def _content(item):
    return without_ids({name: value for name, value in item.items() if name not in ("id", "call_id")})
