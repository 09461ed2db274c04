"""An engine whose events come twice, late, never, in the wrong order or about the wrong thing."""

from hypothesis import given, settings
from hypothesis import strategies as st
from property.engine import Client, carried_calls, completed, cutters, make_turn, plain_items, searches, spell, styles

from gateway.protocol.errors import GatewayError, UpstreamError

said = st.lists(st.one_of(plain_items, carried_calls, searches), min_size=1, max_size=3)
NAMES = ("item_id", "output_index", "content_index", "summary_index", "item", "part", "text", "arguments", "delta")
STRAY = [
    {"type": "response.created"},
    {"type": "response.queued", "response": None},
    {"type": "keepalive"},
    {"type": "response.output_text.annotation.added", "output_index": 0, "annotation": {"type": "file_path"}},
    {"type": "response.output_text.delta", "delta": "late", "logprobs": [{"token": "late", "logprob": -1}]},
    {"type": "response.output_text.delta", "item_id": "e0", "delta": "more", "content_index": 7, "logprobs": [1]},
    {"type": "response.output_text.done", "item_id": "e0", "text": "other", "logprobs": [{"token": "x"}]},
    {"type": "response.reasoning_text.delta", "item_id": "e0", "delta": "why"},
    {"type": "response.function_call_arguments.delta", "item_id": "e0", "delta": "{"},
    {"type": "response.function_call_arguments.done", "output_index": 1, "arguments": "{}", "name": "late"},
    {"type": "response.custom_tool_call_input.done", "output_index": 1},
    {"type": "response.web_search_call.searching", "output_index": 0},
    {"type": "response.output_item.added", "item": {"type": "function_call", "call_id": "call_z"}, "output_index": 1},
    {"type": "response.output_item.added", "item": {"type": "message"}},
    {"type": "response.output_item.done", "item": {"type": "message", "content": "text"}, "output_index": 0},
]


@st.composite
def disorders(draw: st.DrawFn):
    """The events of a few items, mutilated."""
    events = []
    for index, item in enumerate(draw(said)):
        events += spell(item, index, draw(cutters()), draw(styles))
    events += draw(st.lists(st.sampled_from(STRAY), max_size=4))
    copies = draw(st.lists(st.sampled_from(events), max_size=4))
    chosen = [event for event in events if draw(st.integers(0, 5))] + copies
    if draw(st.booleans()):
        chosen = draw(st.permutations(chosen))
    return [_damage(draw, dict(event), events) for event in chosen]


def _damage(draw: st.DrawFn, event: dict, others: list[dict]) -> dict:
    match draw(st.integers(0, 9)):
        case 0:
            for name in draw(st.lists(st.sampled_from(NAMES), max_size=3)):
                event.pop(name, None)
        case 1:
            event[draw(st.sampled_from(NAMES[:4]))] = None
        case 2:
            event["output_index"] = draw(st.integers(-1, 4))
        case 3:
            event["item_id"] = draw(st.sampled_from(["e0", "e1", "e9", ""]))
        case 4:
            event["type"] = draw(st.sampled_from(others))["type"]
        case 5 if "item" in event:
            event["item"] = {**event["item"], "id": draw(st.sampled_from(["e0", "e1", "e9", None]))}
        case _:
            pass
    return event


ends = st.sampled_from([completed(), completed(status="incomplete"), completed(status="failed"), None])
modes = st.sampled_from(["off", "instead", "both"])


@settings(max_examples=settings.default.max_examples * 5 // 2)
@given(disorders(), ends, modes, st.sampled_from([1 << 20, 2000, 700, 300]))
def test_no_order_of_events_breaks_the_client_stream(events, end, mode, retained):
    client = Client(make_turn(retained, summary_mode=mode))
    round_ = client.turn.open_round()
    try:
        for event in events:
            client.ingest(round_, event)
        if end is None:
            raise UpstreamError("The stream ended early.")
        client.ingest(round_, end)
        client.finish()
    except GatewayError as error:
        client.fail(error, round_)
    assert client.faults() == []
    assert client.turn.phase.is_terminal


@settings(max_examples=settings.default.max_examples * 2)
@given(disorders(), st.lists(st.one_of(plain_items, searches), max_size=4), st.sampled_from([1 << 20, 900, 500]))
def test_a_final_snapshot_of_anything_keeps_the_rules(events, said, retained):
    client = Client(make_turn(retained))
    round_ = client.turn.open_round()
    try:
        for event in events:
            client.ingest(round_, event)
        client.ingest(round_, completed(said))
        client.finish()
    except GatewayError as error:
        client.fail(error, round_)
    assert client.faults() == []
