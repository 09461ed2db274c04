"""How a text is cut, and how an engine words its stream, changes nothing but the deltas themselves."""

import pytest
from conformance.verdict import schema
from hypothesis import given
from hypothesis import strategies as st
from property.engine import client_calls, cutters, items, play, play_body, reasonings, styles, texts, without_ids

from gateway.protocol.items import CLIENT_CALLS
from gateway.protocol.ledger import charge

said = st.lists(items, max_size=4)


@pytest.mark.checklist(105)
@given(said=said, cut=cutters(), style=styles)
def test_every_way_of_saying_it_gives_the_same_response(said, cut, style):
    whole, body, pieces = play(said), play_body(said), play(said, cut, style)
    assert without_ids(pieces.output) == without_ids(whole.output) == without_ids(body.output)
    assert _said(pieces) == _said(whole) == _said(body)
    totals = {client.turn.ledger.total for client in (whole, body, pieces)}
    assert totals == {sum(charge(item) for item in whole.output)}


@given(said=said, cut=cutters(), style=styles)
def test_every_way_of_saying_it_keeps_the_rules(said, cut, style):
    for client in (play(said, cut, style), play_body(said)):
        assert client.faults() == []
        assert [fault for told in client.told for fault in schema().check_event(told)] == []


@pytest.mark.checklist(105)
@given(call=client_calls, cut=cutters(), style=styles)
def test_a_call_of_a_clients_tool_is_a_valid_item_whatever_it_says(call, cut, style):
    (item,) = play([call], cut, style).output
    assert without_ids(item) == without_ids(play_body([call]).output[0])
    assert item["type"] in CLIENT_CALLS.keys() - {"function_call", "custom_tool_call"}
    assert schema().check_item(item) == []


@given(reasonings(), cutters(), st.sampled_from(["instead", "both"]))
def test_mirrored_reasoning_is_the_same_for_every_cut(reasoning, cut, mode):
    said = [{**reasoning, "summary": []}]
    whole, body, pieces = (
        play(said, summary_mode=mode),
        play_body(said, summary_mode=mode),
        play(said, cut, summary_mode=mode),
    )
    assert without_ids(pieces.output) == without_ids(whole.output) == without_ids(body.output)
    assert _said(pieces) == _said(whole) == _said(body)
    assert pieces.turn.ledger.total == body.turn.ledger.total == sum(charge(item) for item in whole.output)
    assert pieces.faults() == body.faults() == []
    (item,) = whole.output
    texts = [part["text"] for part in reasoning["content"]]
    assert [part["text"] for part in item["summary"]] == texts
    assert [part["text"] for part in item.get("content", [])] == ([] if mode == "instead" else texts)


@given(text=texts, cut=cutters())
def test_annotations_and_logprobs_are_the_same_for_every_cut(text, cut):
    annotation = {"type": "file_citation", "file_id": "f", "filename": "ö", "index": 3}
    logprob = {"token": "é", "logprob": -1, "top_logprobs": []}
    part = {"type": "output_text", "text": text, "annotations": [annotation], "logprobs": [logprob]}
    said = [{"type": "message", "role": "assistant", "content": [part]}]
    clients = [play(said), play(said, cut), play_body(said)]
    assert [client.output[0]["content"] for client in clients] == [[part]] * 3
    assert {client.turn.ledger.total for client in clients} == {charge(clients[0].output[0])}


def _said(client):
    """Deltas by channel; one that never came and one that came empty say the same."""
    return {place: text for place, text in client.deltas.items() if text}
