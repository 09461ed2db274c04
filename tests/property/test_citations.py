"""A message cites the same, however the engine spells it."""

import pytest
from hypothesis import given
from property.engine import MESSAGE, Client, Style, body_of, completed, cutters, make_turn, settled, spell, styles

from gateway.protocol.citations import Source
from gateway.protocol.errors import ResourceLimitExceeded

TEXT = "𝄞 It rains [1], as [two](https://two.example/) says. `a[2]`"
SOURCES = [Source(1, "https://one.example", "One"), Source(2, "https://two.example", "Two")]
CITED = [
    {"type": "url_citation", "start_index": 11, "end_index": 14, "url": "https://one.example", "title": "One"},
    {"type": "url_citation", "start_index": 19, "end_index": 46, "url": "https://two.example", "title": "Two"},
]
SAID = {**MESSAGE, "content": [{"type": "output_text", "text": TEXT, "annotations": [], "logprobs": []}]}


def citing() -> Client:
    client = Client()
    client.turn.permit_citing(SOURCES)
    return client


def check(client: Client) -> None:
    client.finish()
    settled(client)
    (message,) = client.output
    (part,) = message["content"]
    assert (part["text"], part["annotations"]) == (TEXT, CITED)
    kinds = [event["type"].removeprefix("response.") for event in client.told]
    told = [event for event in client.told if event["type"] == "response.output_text.annotation.added"]
    assert [(event["annotation_index"], event["annotation"]) for event in told] == list(enumerate(CITED))
    assert (
        kinds.index("output_text.annotation.added") < kinds.index("output_text.done") < kinds.index("content_part.done")
    )


@pytest.mark.checklist(307)
@given(cutters(), styles)
def test_each_spelling_cites_the_same(cut, style: Style):
    client = citing()
    round_ = client.turn.open_round()
    for event in [*spell(SAID, 0, cut, style), completed([SAID])]:
        client.ingest(round_, event)
    check(client)


def test_a_whole_body_cites_the_same():
    client = citing()
    client.hear(client.turn.ingest_body(client.turn.open_round(), body_of([SAID])))
    check(client)


def test_an_engine_that_annotates_as_well_keeps_what_it_told_first():
    own = {"type": "file_citation", "file_id": "f"}
    client = citing()
    round_ = client.turn.open_round()
    place = {"output_index": 0, "content_index": 0}
    client.ingest(round_, {"type": "response.output_text.delta", "delta": "See [1]", **place})
    client.ingest(round_, {"type": "response.output_text.annotation.added", "annotation": own, **place})
    client.ingest(round_, {"type": "response.output_text.done", "text": "See [1]", **place})
    part = {"type": "output_text", "text": "See [1]", "annotations": [own]}
    client.ingest(round_, {"type": "response.content_part.done", "part": part, **place})
    client.ingest(round_, completed())
    settled(client.finish())
    assert [found["type"] for found in client.output[0]["content"][0]["annotations"]] == [
        "file_citation",
        "url_citation",
    ]


def test_citations_count_as_retained():
    source = Source(1, "https://one.example", "t" * 1000)
    client = Client(make_turn(max_retained_bytes=2000))
    client.turn.permit_citing([source])
    round_ = client.turn.open_round()
    client.ingest(round_, {"type": "response.output_text.delta", "delta": "[1] [1]"})
    with pytest.raises(ResourceLimitExceeded):
        client.ingest(round_, completed())
