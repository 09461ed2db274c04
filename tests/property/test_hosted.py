"""Calls of the gateway's own tools: whatever the engine's pieces and whichever result comes first, the same items."""

import contextlib

from harness.tools import returned, tool
from hypothesis import given
from hypothesis import strategies as st
from property.engine import (
    FULL,
    Client,
    completed,
    cutters,
    make_turn,
    plain_items,
    spell,
    styles,
    texts,
    whole,
    without_ids,
)

from gateway.protocol.errors import ResourceLimitExceeded
from gateway.protocol.hosted_history import recall_hosted, recall_round
from gateway.protocol.hosted_slots import HostedSlot

TOOLS = [tool("look"), tool("web_search", "", "web_search_call"), tool("pay", kind="mcp_approval_request")]
NAMES = [tool.function["name"] for tool in TOOLS]

hosted_calls = st.fixed_dictionaries(
    {
        "type": st.just("function_call"),
        "call_id": st.sampled_from(["call_a", "call_b", ""]),
        "name": st.sampled_from(NAMES),
        "arguments": st.one_of(texts, st.just('{"queries": ["cats"]}')),
    }
)
said = st.lists(st.one_of(plain_items, hosted_calls), max_size=4)


def listen(items, cut, style, order, limit=None, most=None):
    """A client that hears the items, and then the results in some order."""
    client = Client(make_turn() if limit is None else make_turn(limit))
    client.turn.host(TOOLS, most)
    round_ = client.turn.open_round()
    events = [event for index, item in enumerate(items) for event in spell(item, index, cut, style)]
    for event in [*events, completed()]:
        client.ingest(round_, event)
    calls = [slot for slot in round_.queue if isinstance(slot, HostedSlot) and slot.awaits]
    for number in sorted(range(len(calls)), key=lambda number: order[number % len(order)]):
        client.hear(client.turn.conclude_call(round_, calls[number], returned(f"result of {number}")))
    return client, round_


@given(said, cutters(), styles, st.permutations(range(4)))
def test_cuts_and_the_order_of_results_change_nothing(items, cut, style, order):
    pieces, _ = listen(items, cut, style, order)
    plain, _ = listen(items, whole, style, range(4))
    pieces.finish()
    plain.finish()
    assert pieces.faults() == plain.faults() == []
    assert without_ids(pieces.output) == without_ids(plain.output)
    assert pieces.turn.ledger.total == plain.turn.ledger.total


@given(said, cutters(), st.permutations(range(4)), st.integers(0, 2))
def test_no_more_calls_than_allowed_are_run_or_shown(items, cut, order, most):
    client, _ = listen(items, cut, FULL, order, most=most)
    client.finish()
    ran = [item for item in client.output if item["type"] in ("mcp_call", "web_search_call")]
    wanted = [item for item in items if item.get("name") in NAMES[:2]]
    assert client.faults() == []
    assert len(ran) == min(most, len(wanted))


@given(said, cutters(), st.permutations(range(4)), st.integers(0, 4000))
def test_the_limit_is_never_passed(items, cut, order, limit):
    turn = None
    with contextlib.suppress(ResourceLimitExceeded):
        client, _ = listen(items, cut, FULL, order, limit)
        turn = client.turn
    assert turn is None or turn.ledger.total <= limit


@given(said, cutters(), st.permutations(range(4)))
def test_a_round_is_told_to_the_engine_as_a_continuation_tells_it(items, cut, order):
    client, round_ = listen([item for item in items if item.get("name") != NAMES[1]], cut, FULL, order)
    client.finish()
    assert recall_hosted(recall_round(round_.slots)) == recall_hosted(client.output)
