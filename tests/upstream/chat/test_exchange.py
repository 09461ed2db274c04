import asyncio
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from property.engine import make_turn, without_ids

from gateway.protocol import codec
from gateway.protocol.errors import ResourceLimitExceeded, UpstreamError
from gateway.protocol.sse import SseDecoder
from gateway.protocol.upstream_events import parse
from gateway.upstream.chat import ChatExchange

CAPTURES = {path.stem: path.read_bytes() for path in sorted(Path(__file__).with_name("captures").glob("*.raw"))}
STREAMS = sorted(name for name in CAPTURES if name.endswith("_stream"))
WORDS = b'data: {"choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n'
MIXED = (
    b'\xef\xbb\xbf: hello\r\n\r\ndata: {"choices":[{"index":0,"delta":{"reasoning":"\xc3\xa9\xe2\x80\xa8"}}]}\r\n\r\n'
    b'data: {"choices":[{"index":0,\ndata: "delta":{"content":"\\ud83d\\ude00 a"}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"1","function":{"name":"f","arguments":"{"}}'
    b',{"index":1,"id":"2","function":{"name":"g","arguments":"{}"}}]}}]}\r\r'
    b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"}"}}]}}]}\n\n'
    b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}\n\ndata: [DONE]\n\n'
)


class Answer:
    """An HTTP answer that arrives in these pieces; an error is raised in its place."""

    def __init__(self, *pieces: bytes | Exception | None, event_stream: bool = True) -> None:
        self._pieces = list(pieces)
        self.is_event_stream = event_stream
        self.retired = self.closed = self.waits = 0

    def take(self) -> bytes | None:
        piece = self._pieces.pop(0) if self._pieces else b""
        if isinstance(piece, Exception):
            raise piece
        return piece

    async def arrival(self) -> None:
        self.waits += 1

    def retire(self) -> None:
        self.retired += 1

    async def close(self) -> None:
        self.closed += 1


def exchange(*pieces: bytes | Exception | None, event_stream: bool = True, line: int = 1 << 20, body: int = 1 << 20):
    return ChatExchange(Answer(*pieces, event_stream=event_stream), max_line_bytes=line, max_json_bytes=body)


async def drain(chat: ChatExchange) -> bytes:
    said = b""
    while data := await chat.read():
        said += data
    return said


def said_by(stream: bytes) -> dict:
    """The response that a turn makes of a stream, without its ids."""
    turn = make_turn()
    turn.begin()
    round_ = turn.open_round()
    for name, data in SseDecoder(1 << 30).feed(stream):
        turn.ingest(round_, parse(name, data))
    assert round_.ended
    return without_ids(codec.decode(codec.encode(turn.propose(0))))


def texts(response: dict) -> list[str]:
    return [item.get("arguments") or "".join(part["text"] for part in item["content"]) for item in response["output"]]


# ---------------------------------------------------------------- recordings


async def test_a_recorded_answer_says_the_same_in_one_piece_and_in_many():
    whole = json.loads(await drain(exchange(CAPTURES["vllm-chat_nonstream"], event_stream=False)))
    streamed = said_by(await drain(exchange(CAPTURES["vllm-chat_stream"])))
    assert texts(whole) == texts(streamed) == ["\nOkay, the user wants something; keep it short.\n", "\n\nForty-two."]
    assert whole["usage"]["output_tokens"] == streamed["usage"]["output_tokens"] == 16
    assert streamed["usage"]["output_tokens_details"]["reasoning_tokens"] == 10


async def test_recorded_calls():
    (item,) = said_by(await drain(exchange(CAPTURES["vllm-chat_tool_stream"])))["output"]
    assert json.loads(item["arguments"]) == {"city": "Paris", "unit": "celsius"}
    assert (item["name"], item["call_id"]) == ("get_weather", "chatcmpl-tool-ad5d9fe393390e1e")


async def test_a_recorded_answer_that_was_cut_short():
    response = said_by(await drain(exchange(CAPTURES["llama.cpp-gemma3-270m-chat_stream"])))
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert texts(response)[0].startswith("A. Paris\nB. Bordeaux")
    assert response["usage"]["output_tokens"] == 20


async def test_a_call_whose_name_comes_late_has_it_in_the_end():
    pieces = [
        {"index": 0, "id": "1", "function": {"arguments": "{"}},
        {"index": 1, "id": "2", "function": {"name": "g", "arguments": "{}"}},
        {"index": 0, "function": {"name": "f", "arguments": "}"}},
    ]
    chunks = [{"choices": [{"delta": {"tool_calls": [piece]}}]} for piece in pieces]
    stream = b"".join(b"data: %b\n\n" % json.dumps(chunk).encode() for chunk in chunks)
    calls = said_by(await drain(exchange(stream + b"data: [DONE]\n\n")))["output"]
    assert [(call["name"], call["arguments"]) for call in calls] == [("f", "{}"), ("g", "{}")]


# ---------------------------------------------------------------- cuts


@pytest.mark.parametrize("name", [*STREAMS, "mixed"])
async def test_no_cut_in_two_changes_what_is_said(name):
    stream = CAPTURES.get(name, MIXED)
    expected = await drain(exchange(stream))
    # Every place in what is short, and in a long one those around the ends of lines.
    places = range(len(stream)) if len(stream) < 1000 else [at + d for at in _ends(stream) for d in (-1, 0, 1, 2)]
    for at in places:
        assert await drain(exchange(stream[:at] or b":", stream[at:])) == expected


def _ends(stream: bytes) -> list[int]:
    return [at for at, byte in enumerate(stream) if byte == 10]


@given(cuts=st.lists(st.integers(1, len(MIXED) - 1), max_size=8, unique=True).map(sorted))
def test_no_cuts_at_all_change_what_is_said(cuts):
    pieces = [MIXED[start:end] for start, end in zip([0, *cuts], [*cuts, len(MIXED)], strict=True)]
    assert asyncio.run(drain(exchange(*pieces))) == asyncio.run(drain(exchange(MIXED)))


async def test_mixed_says_what_it_says():
    response = said_by(await drain(exchange(MIXED)))
    assert texts(response) == ["é\u2028", "😀 a", "{}", "{}"]
    assert [item["status"] for item in response["output"]] == ["completed", "completed", "completed", "incomplete"]


async def test_a_stream_that_stops_has_no_end():
    half = MIXED[: MIXED.index(b'"finish_reason"')]
    assert b"response.completed" not in await drain(exchange(half))


async def test_a_stream_may_end_without_its_last_blank_line():
    assert b"response.completed" in await drain(exchange(MIXED[:-2]))


# ---------------------------------------------------------------- limits


async def test_a_line_is_as_long_as_the_server_made_it():
    line = WORDS % (b"x" * 100)
    at_limit = exchange(line, line=len(line) - 2)
    assert b"x" * 100 in await at_limit.read()
    with pytest.raises(ResourceLimitExceeded, match="max_upstream_sse_line_bytes"):
        await exchange(line, line=len(line) - 3).read()


async def test_a_line_is_refused_before_it_is_whole_and_after_what_came_before():
    chat = exchange(WORDS % b"a" + b"data: " + b"x" * 100, line=80)
    assert b'"delta":"a"' in await chat.read()
    for _ in range(2):
        with pytest.raises(ResourceLimitExceeded):
            await chat.read()


async def test_a_body_is_as_large_as_the_server_made_it():
    body = CAPTURES["vllm-chat_nonstream"]
    assert await drain(exchange(body, event_stream=False, body=len(body)))
    with pytest.raises(ResourceLimitExceeded, match="max_upstream_json_bytes"):
        await exchange(body, event_stream=False, body=len(body) - 1).read()


# ---------------------------------------------------------------- what lies below


async def test_what_breaks_below_breaks_here():
    chat = exchange(WORDS % b"a", UpstreamError("broken"))
    assert await chat.read()
    with pytest.raises(UpstreamError, match="broken"):
        await chat.read()


async def test_a_read_returns_what_says_something():
    chat = exchange(b": ping\n\n", b"data: {}\n\n", WORDS % b"a", b"")
    assert b'"delta":"a"' in await chat.read()
    assert await chat.read() == b""
    assert await chat.read() == b""


async def test_what_has_not_arrived_is_waited_for():
    answer = Answer(None, b": ping\n\n", None, WORDS % b"a", b"")
    chat = ChatExchange(answer, max_line_bytes=1000, max_json_bytes=1)
    assert chat.take() is None
    assert b'"delta":"a"' in await chat.read()
    assert answer.waits == 1
    assert chat.take() == b""


async def test_the_connection_is_given_back_as_ever():
    answer = Answer()
    chat = ChatExchange(answer, max_line_bytes=1, max_json_bytes=1)
    chat.retire()
    await chat.close()
    assert (answer.retired, answer.closed) == (1, 1)
    assert chat.is_translated
