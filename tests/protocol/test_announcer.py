"""When the client hears of what has come."""

import pytest
from property.engine import MESSAGE, Client, added, completed, done, make_turn, settled, spell, text, texts_of, whole

from gateway.protocol.errors import ResourceLimitExceeded


def test_items_are_told_one_at_a_time():
    events = [added({"type": "message", "id": "a"}, 0), added({"type": "message", "id": "b"}, 1)]
    events += [
        text("2", item_id="b", output_index=1),
        text("1", item_id="a", output_index=0),
        done({"type": "message", "id": "b"}, 1),
    ]
    client = Client()
    round_ = client.turn.open_round()
    for one in events:
        client.ingest(round_, one)
    assert {told["output_index"] for told in client.told if "output_index" in told} == {0}
    client.ingest(round_, done({"type": "message", "id": "a"}, 0))
    client.ingest(round_, completed())
    assert texts_of(settled(client.finish())) == [["1"], ["2"]]


def test_the_last_item_is_held_back_until_the_round_ends():
    client = Client()
    round_ = client.turn.open_round()
    for one in spell(MESSAGE, 0, whole):
        client.ingest(round_, one)
    assert not [told for told in client.told if told["type"].endswith("output_item.done")]
    client.ingest(round_, completed(status="incomplete"))
    assert settled(client.finish()).output[0]["status"] == "incomplete"


def test_a_refused_item_leaves_no_trace():
    client = Client(make_turn(100))
    round_ = client.turn.open_round()
    with pytest.raises(ResourceLimitExceeded):
        client.ingest(round_, added(MESSAGE, 0))
    assert client.turn.ledger.total == 0
    assert client.fail(ResourceLimitExceeded("max_retained_bytes", 100), round_).output == []
