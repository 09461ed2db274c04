"""The growing texts inside an item."""

import pytest
from property.engine import MESSAGE, added, done, event, listen, settled, text, texts_of

from gateway.protocol.ledger import charge


def test_unknown_parts_are_carried_as_they_came():
    strange = {"type": "output_image", "url": "data:,", "more": [1]}
    for events in (
        [done({**MESSAGE, "content": [strange]}, 0)],
        [added({"type": "message"}, 0), event("content_part.done", output_index=0, content_index=0, part=strange)],
    ):
        client = listen(*events)
        assert client.output[0]["content"] == [strange]
        assert client.turn.ledger.total == charge(client.output[0])
        part_done = next(told for told in client.told if told["type"].endswith("part.done"))
        assert part_done["part"] == strange


def test_unknown_parts_are_announced_as_what_they_are_and_final_once_done():
    begun, final, late = ({"type": "output_image", "url": f"data:,{number}"} for number in range(3))
    events = [event("content_part.added", part=begun), event("content_part.done", part=final)]
    client = listen(*events, event("content_part.done", part=late))
    assert [told["part"] for told in client.told if "content_part" in told["type"]] == [begun, final]
    assert client.output[0]["content"] == [final]
    assert client.turn.ledger.total == charge(client.output[0])


@pytest.mark.parametrize("kind", [5, None, ["output_text"]])
def test_a_part_of_no_type_is_text_or_carried(kind):
    client = listen(added({"type": "message"}, 0), event("content_part.added", output_index=0, part={"type": kind}))
    assert len(client.output[0]["content"]) == 1


def test_a_part_may_be_announced_without_being_described():
    client = settled(
        listen(
            added({"type": "reasoning"}, 0),
            event("content_part.added", output_index=0),
            event("content_part.done", output_index=0),
        )
    )
    assert client.output[0]["content"] == [{"type": "reasoning_text", "text": ""}]


def test_content_may_be_a_text_and_junk_in_it_is_left_out():
    assert texts_of(settled(listen(done({"type": "message", "content": "Hi"}, 0)))) == [["Hi"]]
    junk = {
        "type": "message",
        "content": [5, None, {"type": "text", "text": "Hi"}, {"type": "refusal", "refusal": 5}],
        "summary": [{"text": "no"}],
    }
    assert texts_of(settled(listen(done(junk, 0)))) == [["Hi", ""]]
    assert texts_of(settled(listen(done({"type": "message", "content": 5}, 0)))) == [[]]


def test_summaries_inside_content_are_summaries():
    item = {"type": "reasoning", "content": [{"type": "summary_text", "text": "s"}], "summary": [None]}
    assert settled(listen(done(item, 0))).output[0]["summary"] == [{"type": "summary_text", "text": "s"}]


def test_part_indexes_of_the_client_are_dense():
    events = [text("a", content_index=4), event("refusal.delta", delta="b", content_index=9)]
    client = settled(listen(*events))
    assert [told["content_index"] for told in client.told if told["type"].endswith("part.added")] == [0, 1]
    assert texts_of(client) == [["a", "b"]]


def test_phase_and_sealed_reasoning_are_taken_late():
    message, reasoning = {**MESSAGE, "phase": "final_answer"}, {"type": "reasoning", "encrypted_content": "gAAA"}
    begun = [added({"type": "message"}, 0), added({"type": "reasoning"}, 1)]
    client = settled(listen(*begun, done(message, 0), done(reasoning, 1)))
    assert client.output[0]["phase"] == "final_answer"
    assert client.output[1]["encrypted_content"] == "gAAA"


def test_annotations_are_told_when_they_come():
    annotation = {"type": "file_path", "file_id": "f"}
    client = settled(listen(text("Hi"), event("output_text.annotation.added", annotation=annotation)))
    assert client.output[0]["content"][0]["annotations"] == [annotation]
    (told,) = [told for told in client.told if told["type"].endswith("annotation.added")]
    assert (told["annotation_index"], told["annotation"]) == (0, annotation)


def test_logprobs_go_with_their_text():
    one, two = ({"token": token, "logprob": -1, "top_logprobs": []} for token in "ab")
    client = settled(
        listen(
            text("a", logprobs=[one]),
            text("b", logprobs=[two]),
            event("output_text.done", text="ab", logprobs=[one, two]),
        )
    )
    assert [told["logprobs"] for told in client.told if told["type"] == "response.output_text.delta"] == [[one], [two]]
    assert client.output[0]["content"][0]["logprobs"] == [one, two]
    done_only = settled(listen(text("ab"), event("output_text.done", text="ab", logprobs=[one, two])))
    assert done_only.output == client.output


def test_logprobs_after_their_text_are_not_believed():
    late = text("", logprobs=[{"token": "!", "logprob": -1, "top_logprobs": []}])
    assert settled(listen(text("Hi"), event("output_text.done"), late)).output[0]["content"][0]["logprobs"] == []


def test_annotations_and_logprobs_may_come_with_a_snapshot_alone():
    details = {"annotations": [{"type": "file_path"}], "logprobs": [{"token": "Hi", "logprob": -1, "top_logprobs": []}]}
    part = {"type": "output_text", "text": "Hi", **details}
    client = settled(listen(text("Hi"), event("content_part.done", part=part)))
    assert client.output[0]["content"] == [part]
    assert client.told[-2]["item"]["content"] == [part]


@pytest.mark.parametrize(("mode", "content"), [("off", ["Hm"]), ("instead", []), ("both", ["Hm"])])
def test_reasoning_is_told_as_the_mode_says(mode, content):
    reasoning = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]}
    for events in ([done(reasoning, 0)], [event("reasoning_text.delta", delta="Hm"), event("reasoning_text.done")]):
        (item,) = settled(listen(*events, summary_mode=mode)).output
        assert [part["text"] for part in item.get("content", [])] == content
        assert [part["text"] for part in item["summary"]] == ([] if mode == "off" else ["Hm"])


def test_a_snapshot_brings_its_summaries():
    reasoning = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}]}
    client = settled(listen(added({"type": "reasoning"}, 0), done(reasoning, 0)))
    assert client.output[0]["summary"] == reasoning["summary"]
