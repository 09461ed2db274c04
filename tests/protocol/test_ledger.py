"""The accounting of what a turn retains; its laws are stated as properties elsewhere."""

import pytest

from gateway.protocol.errors import ResourceLimitExceeded
from gateway.protocol.ledger import Ledger, charge, text_bytes


@pytest.mark.parametrize(
    ("value", "bytes_"),
    [
        (None, 32), (True, 32), (12, 32), (1.5, 32), ("", 32), ("abc", 35), ("é😀", 38), ("\udfff", 35), ("\0\n", 34),
        ([], 32), ([1, "a"], 97), ((1,), 64), ({}, 32), ({"a long key": "v"}, 65), ({"a": {"b": [None]}}, 128),
    ],
)  # fmt: skip
def test_charges(value, bytes_):
    assert charge(value) == bytes_


def test_depth_costs_no_recursion():
    value: list = []
    for _ in range(100_000):
        value = [value]
    assert charge(value) == 32 * 100_001


def test_text_is_counted_in_utf8():
    assert [text_bytes(text) for text in ("", "a", "é", "€", "😀", "\udfff")] == [0, 1, 2, 3, 4, 3]


def test_slots_grow_shrink_and_are_replaced_under_one_limit():
    ledger = Ledger(100)
    ledger.grow("a", 60)
    ledger.replace("b", 40)
    assert (ledger.total, ledger.limit) == (100, 100)
    with pytest.raises(ResourceLimitExceeded, match="max_retained_bytes"):
        ledger.grow("c", 1)
    with pytest.raises(ResourceLimitExceeded):
        ledger.replace("b", 41)
    ledger.replace("a", 10)
    ledger.grow("b", -40)
    assert ledger.total == 10


def test_what_is_asked_first_changes_nothing():
    ledger = Ledger(10)
    assert ledger.fits(10)
    assert not ledger.fits(11)
    assert ledger.total == 0
