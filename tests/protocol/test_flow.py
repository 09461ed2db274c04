"""Where the short way of a text begins; that it tells what the long one does is stated as a property elsewhere."""

import pytest
from property.engine import Client, added, event, make_turn, text


def begin(item, *events, **options):
    """A client, and the round in which these events have come."""
    client = Client(make_turn(**options))
    round_ = client.turn.open_round()
    for one in (added({"type": item}, 0), *({**one, "output_index": 0} for one in events)):
        client.ingest(round_, one)
    return client, round_


@pytest.mark.parametrize(
    ("item", "begun", "delta"),
    [
        ("message", event("content_part.added", part={"type": "output_text"}), "output_text"),
        ("message", event("content_part.added", part={"type": "refusal"}), "refusal"),
        ("reasoning", event("reasoning_part.added", part={"type": "reasoning_text"}), "reasoning_text"),
        ("reasoning", event("reasoning_summary_part.added", part={}), "reasoning_summary_text"),
        ("message", text("a"), "output_text"),
    ],
)
def test_a_text_flows_once_its_part_is_added_or_has_grown(item, begun, delta):
    client, round_ = begin(item, begun)
    flow = round_.flow
    assert flow is not None
    client.ingest(round_, event(f"{delta}.delta", delta="more", output_index=0))
    assert round_.flow is flow, "it was not told by the long way, which begins another"
    assert (client.told[-1]["type"], client.told[-1]["delta"]) == (f"response.{delta}.delta", "more")
    assert client.told[-1]["sequence_number"] == len(client.told) - 1 == client.turn.next_number - 1


@pytest.mark.parametrize(
    ("item", "begun", "options"),
    [
        ("message", event("content_part.added", part={"type": "output_image"}), {}),
        (
            "message",
            event("content_part.added", part={"type": "output_text", "text": "it may go on or be repeated"}),
            {},
        ),
        ("reasoning", event("reasoning_part.added"), {"summary_mode": "both"}),
        ("message", event("output_text.done", text=""), {}),
    ],
)
def test_what_is_not_told_by_deltas_alone_does_not_flow(item, begun, options):
    assert begin(item, begun, **options)[1].flow is None
