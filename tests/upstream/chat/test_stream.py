import json

import pytest

from gateway.protocol.sse import SseDecoder
from gateway.upstream.chat.stream import ChatStream


def chunk(delta: dict | None = None, finish: str | None = None, **more) -> bytes:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish, **more}
    return json.dumps({"id": "c", "model": "m", "choices": [choice]}).encode()


def call(index: int | None, call_id: str | None = None, name: str | None = None, arguments: str | None = None) -> bytes:
    piece = {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}
    return chunk({"tool_calls": [piece]})


def events(*chunks: bytes, end: bytes | None = b"[DONE]") -> list[dict]:
    """What the chunks become; every event's name is its type."""
    stream = ChatStream()
    said = b"".join(stream.feed((b"", data)) for data in (*chunks, *([] if end is None else [end]))) + stream.end()
    told = []
    for name, data in SseDecoder(1 << 20).feed(said):
        told.append(json.loads(data))
        assert told[-1]["type"] == name.decode()
    return told


def brief(told: list[dict]) -> list[tuple]:
    assert told[0] == {"type": "response.created"}
    return [
        (event["type"].removeprefix("response."), event.get("output_index"), event.get("delta")) for event in told[1:]
    ]


def test_one_item_after_the_other():
    told = events(
        chunk({"role": "assistant", "content": ""}),
        chunk({"reasoning": "T"}), chunk({"reasoning_content": "U"}),
        chunk({"content": "S"}), chunk({"refusal": "R"}),
        call(0, "1", "f", "{"), call(0, None, None, "}"),
        chunk(finish="tool_calls"),
    )  # fmt: skip
    assert brief(told) == [
        ("output_item.added", 0, None), ("reasoning_text.delta", 0, "T"), ("reasoning_text.delta", 0, "U"),
        ("output_item.done", 0, None),
        ("output_item.added", 1, None), ("output_text.delta", 1, "S"), ("refusal.delta", 1, "R"),
        ("output_item.done", 1, None),
        ("output_item.added", 2, None),
        ("function_call_arguments.delta", 2, "{"), ("function_call_arguments.delta", 2, "}"),
        ("completed", None, None),
    ]  # fmt: skip
    assert told[-1]["response"]["status"] == "completed"
    assert told[-1]["response"]["id"] == "c"


def calls_of(*chunks: bytes) -> list[tuple[str, str, str]]:
    found: dict[int, list[str]] = {}
    for event in events(*chunks, chunk(finish="tool_calls")):
        if event["type"] == "response.output_item.added":
            found[event["output_index"]] = [event["item"]["call_id"], event["item"]["name"], event["item"]["arguments"]]
        elif event["type"].endswith("arguments.delta"):
            found[event["output_index"]][2] += event["delta"]
    return [tuple(one) for one in found.values()]


@pytest.mark.parametrize(
    "chunks",
    [
        [call(0, "1", "f", "{}"), call(1, "2", "g", '{"a'), call(1, None, None, '":1}')],
        # Pieces of both in turns.
        [call(0, "1", "f", "{"), call(1, "2", "g", '{"a'), call(0, None, None, "}"), call(1, None, None, '":1}')],
        # Every call has the same number.
        [call(0, "1", "f", "{}"), call(0, "2", "g", '{"a":1}')],
        # None has a number, and a piece without a name goes on with the one before.
        [call(None, "1", "f", "{"), call(None, None, None, "}"), call(None, "2", "g", '{"a":1}')],
        # The id is repeated.
        [call(0, "1", "f", "{"), call(0, "1", None, "}"), call(1, "2", "g", ""), call(1, "2", "", '{"a":1}')],
        # The name comes late.
        [call(0, "1", None, "{"), call(0, None, "f", "}"), call(1, "2", "g", '{"a":1}')],
        [chunk({"tool_calls": [
            {"index": 0, "id": "1", "function": {"name": "f", "arguments": {}}},
            {"index": 1, "id": "2", "function": {"name": "g", "arguments": {"a": 1}}},
        ]})],
    ],
)  # fmt: skip
def test_calls_however_they_are_numbered_and_cut(chunks):
    assert calls_of(*chunks) == [("1", "f", "{}"), ("2", "g", '{"a":1}')]


@pytest.mark.parametrize("index", ["0", [], {}, 1.5])
def test_a_number_that_is_none_is_no_number(index):
    chunks = call(index, "1", "f", "{"), call(index, None, None, "}"), call(index, "2", "g", "{}")
    assert calls_of(*chunks) == [("1", "f", "{}"), ("2", "g", "{}")]


def test_the_call_of_before_there_were_several():
    chunks = chunk({"function_call": {"name": "f", "arguments": "{"}}), chunk({"function_call": {"arguments": "}"}})
    assert calls_of(*chunks) == [("", "f", "{}")]


def test_a_call_without_a_name_is_told_without_one():
    assert calls_of(call(0, "1", None, "{}")) == [("1", "", "{}")]


def test_a_name_may_come_when_another_call_has_begun():
    told = events(call(0, "1", None, "{"), call(1, "2", "g", "{}"), call(0, None, "f", "}"), chunk(finish="tool_calls"))
    assert told[1]["item"]["name"] == ""
    assert told[-2] == {
        "type": "response.output_item.done",
        "output_index": 0,
        "item": {"type": "function_call", "name": "f"},
    }


def test_arguments_wait_for_a_name_within_a_bound():
    waiting = call(0, "1", None, "x" * 60_000)
    assert [event["type"] for event in events(waiting, end=None)] == ["response.created"]
    deltas = [event for event in events(waiting, waiting, waiting, end=None) if "delta" in event]
    assert [len(event["delta"]) for event in deltas] == [120_000, 60_000]


def test_a_call_whose_arguments_are_whole_ends_when_the_next_begins():
    told = brief(events(call(0, "1", "f", "{}"), call(1, "2", "g", "{"), call(2, "3", "h", "{}"), end=None))
    assert [place for place in told if place[0] == "output_item.done"] == [("output_item.done", 0, None)]


def test_a_number_may_be_anything():
    assert calls_of(call([], "1", "f", "{}"), call("x", "2", "g", '{"a":1}')) == [
        ("1", "f", "{}"),
        ("2", "g", '{"a":1}'),
    ]


def test_usage_comes_behind_the_end():
    usage = json.dumps(
        {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}
    ).encode()
    told = events(chunk({"content": "a"}), chunk(finish="length"), usage)
    assert told[-1]["response"]["usage"]["output_tokens"] == 2
    assert told[-1]["response"]["status"] == "incomplete"
    assert told[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_logprobs_go_with_their_text():
    entry = {"token": "a", "logprob": -1, "bytes": [97], "top_logprobs": []}
    logprobs = {"content": [entry]}
    told = events(
        chunk({"reasoning": "T"}, logprobs=logprobs),
        chunk({"content": "a"}, logprobs=logprobs),
        chunk({"content": ""}, logprobs=logprobs),
        chunk(finish="stop", logprobs=logprobs),
    )
    assert [event.get("logprobs") for event in told if "delta" in event] == [None, [entry], [entry]]


def test_an_end_needs_a_reason_or_a_mark():
    assert events(chunk({"content": "a"}), chunk(finish="stop"), end=None)[-1]["type"] == "response.completed"
    assert events(chunk({"content": "a"}))[-1]["type"] == "response.completed"
    assert events(chunk({"content": "a"}), end=None)[-1]["type"] == "response.output_text.delta"
    assert events() == []


def test_nothing_follows_the_end():
    told = events(chunk({"content": "a"}), chunk(finish="stop"), b"[DONE]", chunk({"content": "b"}))
    assert told[-1]["type"] == "response.completed"
    assert [event["delta"] for event in told if "delta" in event] == ["a"]


@pytest.mark.parametrize(
    "data",
    [
        b'{"error":{"message":"broken","code":500}}',
        b'{"error":"broken"}',
        b'{"object":"error","message":"broken","code":400}',
    ],
)
def test_an_error_ends_the_stream(data):
    told = events(chunk({"content": "a"}), data, chunk(finish="stop"))
    assert told[-1]["type"] == "error"
    assert told[-1]["error"]["message"] == "broken"


def test_an_event_called_error_is_one():
    stream = ChatStream()
    assert stream.feed((b"error", b'{"message":"broken"}')).startswith(b"event: error\n")
    assert stream.ended


def test_an_answer_given_up_is_a_failure():
    ending = events(chunk({"content": "a"}, "abort"))[-1]["response"]
    assert ending["status"] == "failed"
    assert "abort" in ending["error"]["message"]


def test_further_alternatives_and_chunks_of_other_kinds_say_nothing():
    other = json.dumps({"choices": [{"index": 1, "delta": {"content": "b"}}]}).encode()
    assert brief(events(other, b'{"object":"ping"}', b"", chunk({"content": "a"}), end=None)) == [
        ("output_item.added", 0, None),
        ("output_text.delta", 0, "a"),
    ]


def test_what_is_no_chunk_is_left_for_others_to_refuse():
    stream = ChatStream()
    for data in (b"[1,\n2]", b'{"choices":', b"\xff"):
        assert stream.feed((b"", data)).endswith(b"data: " + data.replace(b"\n", b" ") + b"\n\n")
