"""The limit of what one response retains: exact to the byte, whatever form the content takes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.engine import (
    CARRIED,
    Client,
    completed,
    cutters,
    function_calls,
    make_turn,
    plain_items,
    play,
    play_body,
    spell,
    texts,
    whole,
)

from gateway.protocol.errors import ResourceLimitExceeded
from gateway.protocol.ledger import Ledger, charge, text_bytes

# Items that never cost more while they grow than when they are done.
said = st.lists(plain_items, min_size=1, max_size=4)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), texts),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(texts, inner, max_size=4)),
    max_leaves=20,
)


@given(said, cutters())
def test_a_response_fits_at_exactly_its_charge_and_not_a_byte_below(said, cut):
    needed = play(said).turn.ledger.total
    assert play(said, cut, max_retained_bytes=needed).output == play(said).output
    assert play_body(said, max_retained_bytes=needed).output == play(said).output
    for attempt in (
        lambda: play(said, cut, max_retained_bytes=needed - 1),
        lambda: play_body(said, max_retained_bytes=needed - 1),
    ):
        with pytest.raises(ResourceLimitExceeded) as refused:
            attempt()
        assert refused.value.details == {"resource": "max_retained_bytes", "limit": needed - 1}
        assert refused.value.code == "response_resource_limit_exceeded"


@given(said, cutters())
def test_a_truncated_response_fits_at_exactly_its_charge(said, cut):
    def truncated(limit: int) -> Client:
        client = Client(make_turn(limit))
        round_ = client.turn.open_round()
        for index, item in enumerate(said):
            for event in spell(item, index, cut):
                client.ingest(round_, event)
        client.ingest(round_, completed(status="incomplete"))
        return client.finish()

    free = truncated(1 << 30)
    needed = sum(charge(item) for item in free.output)
    assert free.turn.ledger.total == needed
    assert truncated(needed).output == free.output
    with pytest.raises(ResourceLimitExceeded):
        truncated(needed - 1)


@given(texts.filter(bool), st.sampled_from(["get_weather", CARRIED]))
def test_arguments_are_charged_while_they_grow(text, name):
    """A buffer that will never be finished fails as soon as it is too long; a carried one counts as it arrives."""
    call = {"type": "function_call", "call_id": "c", "name": name, "arguments": text}
    *begun, delta = spell(call, 0, whole)[:2]
    client = Client(make_turn())
    round_ = client.turn.open_round()
    for event in begun:
        client.ingest(round_, event)
    before = client.turn.ledger.total
    client.ingest(round_, delta)
    assert client.turn.ledger.total == before + text_bytes(text)

    short = Client(make_turn(before + text_bytes(text) - 1))
    round_ = short.turn.open_round()
    for event in begun:
        short.ingest(round_, event)
    with pytest.raises(ResourceLimitExceeded):
        short.ingest(round_, delta)
    assert short.turn.ledger.total == before


@given(function_calls, cutters())
def test_a_snapshot_equal_to_the_buffer_changes_nothing(call, cut):
    *said, done = spell(call, 0, cut)
    client = Client()
    round_ = client.turn.open_round()
    for event in said:
        client.ingest(round_, event)
    before = client.turn.ledger.total
    for _ in range(2):
        client.ingest(round_, done)
        assert client.turn.ledger.total == before


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(-50, 100), st.booleans()), max_size=30), st.integers(0, 300)
)
def test_the_ledger_is_the_sum_of_its_slots_and_a_refused_change_is_no_change(changes, limit):
    ledger, slots = Ledger(limit), {}
    for slot, amount, replace in changes:
        wanted = abs(amount) if replace else slots.get(slot, 0) + amount
        allowed = sum({**slots, slot: wanted}.values()) <= limit
        assert ledger.fits(wanted - slots.get(slot, 0)) is allowed
        change = ledger.replace if replace else ledger.grow
        if allowed:
            change(slot, abs(amount) if replace else amount)
            slots[slot] = wanted
        else:
            with pytest.raises(ResourceLimitExceeded):
                change(slot, abs(amount) if replace else amount)
        assert ledger.total == sum(slots.values()) <= limit


@given(json_values)
def test_the_charge_is_32_bytes_a_value_and_the_utf8_bytes_of_its_texts(value):
    assert charge(value) == _charge_by_recursion(value)


@given(st.text(st.characters(codec="utf-8")))
def test_text_counts_its_utf8_bytes(text):
    assert text_bytes(text) == len(text.encode())
    assert text_bytes("\udfff" + text) == 3 + len(text.encode())


def _charge_by_recursion(value):
    if isinstance(value, dict):
        return 32 + sum(_charge_by_recursion(member) for member in value.values())
    if isinstance(value, list):
        return 32 + sum(_charge_by_recursion(member) for member in value)
    return 32 + (text_bytes(value) if isinstance(value, str) else 0)
