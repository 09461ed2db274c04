import itertools
import time

import pytest

from gateway.protocol.ids import PREFIXES, UuidIds, is_minted, prefix_of
from gateway.protocol.items import CLIENT_CALLS, CLIENT_OUTPUTS


def test_ids_are_version_7_and_name_their_time():
    before = time.time_ns() // 1_000_000
    digits = UuidIds().mint("resp").removeprefix("resp_")
    after = time.time_ns() // 1_000_000
    assert before <= int(digits[:12], 16) <= after
    assert digits[12] == "7"
    assert digits[16] in "89ab"


def test_ids_of_different_milliseconds_sort_by_time():
    minted = []
    for _ in range(5):
        minted.append(UuidIds().mint("msg"))
        time.sleep(0.002)
    assert all(earlier < later for earlier, later in itertools.pairwise(minted))


def test_ids_do_not_repeat():
    ids = UuidIds()
    assert len({ids.mint("msg") for _ in range(10_000)}) == 10_000


@pytest.mark.parametrize("kind", [*PREFIXES, "something_new"])
def test_minted_ids_are_recognised(kind):
    assert is_minted(UuidIds().mint(prefix_of(kind)))


@pytest.mark.parametrize(
    "foreign",
    ["", "msg_", "msg_12", "chatcmpl-" + "a" * 32, "msg_" + "A" * 32, "msg_" + "a" * 33, "msg_" + "a" * 32 + "\n"],
)
def test_foreign_ids_are_not_recognised(foreign):
    assert not is_minted(foreign)


def test_prefixes_are_distinct_and_cover_what_a_model_writes():
    assert len(set(PREFIXES.values())) == len(PREFIXES)
    assert {"response", "message", "reasoning", *CLIENT_CALLS, *CLIENT_OUTPUTS} <= set(PREFIXES)
    assert prefix_of("no_such_item") == "item"
