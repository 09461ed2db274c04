"""The short way a growing text takes through the accumulator, against the long one."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from property.engine import Client, Json, completed, make_turn
from property.test_disorder import disorders, modes

from gateway.protocol.errors import GatewayError

ITEMS = [
    {"type": "message"},
    {"type": "message", "content": [{"type": "output_text", "text": "ab"}]},
    {"type": "reasoning"},
    {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "ab"}], "summary": [{"text": "q"}]},
    {"type": "function_call", "name": "f", "call_id": "c"},
    {"type": "web_search_call"},
]
PARTS = [
    {"type": "output_text", "text": ""},
    {"type": "output_text", "text": "ab", "annotations": [{"type": "url_citation"}], "logprobs": [{"token": "ab"}]},
    {"type": "reasoning_text", "text": "a"},
    {"type": "summary_text", "text": "a"},
    {"type": "refusal", "refusal": "a"},
    {"type": "unheard_of"},
]
TEXTS = ["output_text", "refusal", "reasoning_text", "reasoning_summary_text"]
# Half a surrogate pair at either end, and characters behind the surrogates, go the long way.
pieces = st.sampled_from(["a", "ab", "é", "b\ud83d", "\ude00c", "\ud83d", "\ude00", "\ufeff", ""])
few_ids = st.sampled_from(["e0", "e0", "e1", None])
few_indexes = st.sampled_from([0, 0, 1, None])


@st.composite
def places(draw: st.DrawFn) -> Json:
    """Where an event belongs, in the few ids and indexes that make items and parts collide."""
    part = draw(few_indexes)
    place = {
        "item_id": draw(few_ids),
        "output_index": draw(few_indexes),
        "content_index": part,
        "summary_index": part,
    }
    return {name: value for name, value in place.items() if value is not None}


@st.composite
def bursts(draw: st.DrawFn) -> list[Json]:
    """A few deltas of one text, the only thing that can take the short way."""
    event = {"type": f"response.{draw(st.sampled_from(TEXTS))}.delta", **draw(places())}
    logprobs: Json = draw(st.sampled_from([{}, {}, {"logprobs": [{"token": "t"}]}]))
    return [{**event, "delta": piece, **logprobs} for piece in draw(st.lists(pieces, min_size=1, max_size=4))]


@st.composite
def interruptions(draw: st.DrawFn) -> list[Json]:
    """One event that opens, closes or settles an item or a part."""
    place = draw(places())
    match draw(st.integers(0, 3)):
        case 0:
            named = {"id": place["item_id"]} if "item_id" in place else {}
            event: Json = {"item": {**draw(st.sampled_from(ITEMS)), **named}}
            kind = draw(st.sampled_from(["output_item.added", "output_item.done"]))
        case 1:
            event, kind = {"part": draw(st.sampled_from(PARTS))}, draw(st.sampled_from(["added", "done"]))
            kind = f"{draw(st.sampled_from(['content_part', 'reasoning_summary_part']))}.{kind}"
        case 2:
            text = draw(st.sampled_from(["", "a", "ab", "aab"]))
            event, kind = {"text": text, "refusal": text}, f"{draw(st.sampled_from(TEXTS))}.done"
        case _:
            event, kind = {"annotation": {"type": "file_path"}}, "output_text.annotation.added"
    return [{"type": f"response.{kind}", **place, **event}]


collisions = st.lists(st.one_of(bursts(), bursts(), interruptions()), max_size=12).map(
    lambda groups: [event for group in groups for event in group]
)


def listen(
    events: list[Json], speakers: list[int], mode: Any, retained: int, *, short: bool
) -> tuple[list[Json], list[Any]]:
    """What the client is told by two rounds that share a turn, and after each event how much, at what charge."""
    client = Client(make_turn(retained, summary_mode=mode))
    rounds = [client.turn.open_round(), client.turn.open_round()]
    trace: list[Any] = []
    try:
        for event, speaker in zip(events, speakers, strict=True):
            if not short:
                rounds[speaker].flow = None
            client.ingest(rounds[speaker], event)
            trace.append((len(client.told), client.turn.ledger.total))
        for round_ in rounds:
            client.ingest(round_, completed())
        client.finish()
    except GatewayError as error:
        trace.append((str(error), client.turn.ledger.total))
        client.fail(error, rounds[0])
    return client.told, trace


@settings(max_examples=settings.default.max_examples * 5 // 2)
@given(st.data(), st.one_of(collisions, collisions, disorders()), modes, st.sampled_from([1 << 20, 1500, 700]))
def test_the_short_way_tells_and_charges_what_the_long_one_does(data, events, mode, retained):
    speakers = data.draw(
        st.one_of(
            st.just([0] * len(events)),
            st.lists(st.integers(0, 1), min_size=len(events), max_size=len(events)),
        )
    )
    told, trace = listen(events, speakers, mode, retained, short=True)
    assert (told, trace) == listen(events, speakers, mode, retained, short=False)
