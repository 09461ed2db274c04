"""What a WebSocket may be sent and should not be: valid creates, what becomes of them by chance, and broken frames.

Everything is drawn from a `random.Random`, so a seed brings the same frames again.
"""

import copy
import json
import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from harness.frames import BINARY, CLOSE, CONTINUATION, PING, PONG, TEXT, encode_frame

MAX_MESSAGE_BYTES = 64 << 10
_LANES = (None, None, "a", "b", "a-lane.with_all-9")
_FUNCTION = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {"at": {}}}}
_CALL = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
_CREATES: tuple[dict[str, Any], ...] = (
    {"input": "hi"},
    {"input": [{"role": "user", "content": [{"type": "input_text", "text": "grüß dich 🦊"}]}], "temperature": 0.5},
    {
        "input": [{"type": "message", "role": "user", "content": "hi"}],
        "instructions": "be brief",
        "metadata": {"a": "b"},
    },
    {"input": "go on", "tools": [_FUNCTION], "tool_choice": "auto", "parallel_tool_calls": False},
    {"input": [_CALL, {"type": "function_call_output", "call_id": "call_1", "output": "there"}], "tools": [_FUNCTION]},
    {"input": "hi", "reasoning": {"effort": "low"}, "include": [], "max_output_tokens": 64, "truncation": "disabled"},
    {"input": "hi", "text": {"format": {"type": "json_schema", "name": "s", "schema": {"type": "object"}}}},
    {"input": "go on", "previous_response_id": "resp_" + "0" * 32, "stream": True},
)
_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 10**30, 1e308),
    *("", "x", "\u0000", "\ud800", "\U0001f98a" * 3, "resp_", "response.create"),
    *([], [[]], [None], {}, {"": {}}, {"type": "message"}, {"type": "input_text", "text": 1}, ["a"] * 40),
)
_NUMBERS = (b"1e400", b"-0", b"01", b"NaN", b"Infinity", b"9" * 400, b"1." + b"0" * 300 + b"1")


@dataclass(frozen=True)
class Sent:
    """What is sent at once.

    Attributes:
        kind: what it is, for the report.
        data: the frames.
        answers: how many responses or error frames it asks for.
        codes: the close codes one of which ends the connection; None if it lives on.
    """

    kind: str
    data: bytes
    answers: int = 0
    codes: frozenset[int] | None = None


def draw_create(source: random.Random) -> dict[str, Any]:
    """A valid create; many of them ask no model, so that the frames are what takes the time."""
    fields = {"model": "quick", **copy.deepcopy(source.choice(_CREATES))}
    if source.random() < 0.9:
        fields["store"] = False
    if source.random() < 0.8:
        fields["generate"] = False
    routing: dict[str, Any] = {"type": "response.create"}
    if (lane := source.choice(_LANES)) is not None:
        routing["stream_id"] = lane
    if source.random() < 0.3:
        routing["event_id"] = f"event {source.random()}"
    return {**routing, "response": fields} if source.random() < 0.3 else {**routing, **fields}


# ---------------------------------------------------------------- messages


def mutate_bytes(source: random.Random) -> bytes:
    """Change, drop, add or repeat characters of a create; what comes out is still UTF-8."""
    text = bytearray(json.dumps(draw_create(source)).encode())
    for _ in range(source.randint(1, 4)):
        at = source.randrange(len(text))
        piece = bytes([source.randrange(128)]) if source.random() < 0.6 else source.choice(b'{}[]",:\\').to_bytes()
        begin, end = sorted((at, source.randrange(len(text))))
        way = source.randrange(5)
        if way == 0:
            text[at : at + 1] = piece
        elif way == 1:
            text[at:at] = piece
        elif way == 2 and end - begin < len(text):
            del text[begin:end]
        elif way == 3:
            text[at:at] = text[begin:end]
        else:
            del text[end:]
        text = text or bytearray(b" ")
    return bytes(text)


def mutate_structure(source: random.Random) -> bytes:
    """Replace, wrap, move or remove a value anywhere in a create."""
    create = draw_create(source)
    for _ in range(source.randint(1, 3)):
        holder, key = source.choice(list(_places(create)))
        way = source.randrange(5)
        if way == 0:
            del holder[key]
        elif way == 1:
            holder[key] = [holder[key]]
        elif way == 2:
            holder[key] = {source.choice(("", "type", "id", "content")): holder[key]}
        elif way == 3:
            other, other_key = source.choice(list(_places(create)))
            holder[key] = copy.deepcopy(other[other_key])
        else:
            holder[key] = copy.deepcopy(source.choice(_VALUES))
        if not create:
            break
    return json.dumps(create).encode()


def mutate_types(source: random.Random) -> bytes:
    """Give one member of a create, or of its routing, any value."""
    create = draw_create(source)
    names = [*create, "stream_id", "event_id", "generate", "background", "stream_options", "prompt_cache_options", "n"]
    create[source.choice(names)] = source.choice(_VALUES)
    return json.dumps(create).encode()


def inflate(source: random.Random) -> bytes:
    """Make something of a create large, deep or numerous, below the limit of a message."""
    create, size = draw_create(source), source.choice((257, 4096, 20_000))
    way = source.randrange(7)
    if way == 0:
        depth = source.choice((60, 130, 257, 5000))
        return b'{"type":"response.create","model":"quick","input":' + b"[" * depth + b"]" * depth + b"}"
    if way == 1:
        number = source.choice(_NUMBERS)
        return b'{"type":"response.create","model":"quick","input":"hi","max_output_tokens":%b}' % number
    if way == 2:
        create[source.choice(("stream_id", "event_id", "model", "input", "previous_response_id"))] = "x" * size
    elif way == 3:
        create["input"] = [source.choice(_VALUES)] * source.choice((100, 250))
    elif way == 4:
        create |= {f"field {number}": number for number in range(source.choice((20, 1000)))}
    elif way == 5:
        create["tools"] = [_FUNCTION] * source.choice((2, 300))
    else:
        create["metadata"] = {f"key {number}": "v" * 64 for number in range(source.choice((17, 300)))}
    return json.dumps(create).encode()


def be_no_create(source: random.Random) -> bytes:
    """Other JSON, other events, and nothing at all."""
    kinds = ("response.steer", "response.inject", "session.update", "response.created", "error", "response.create ", "")
    return source.choice(
        (
            json.dumps({"type": source.choice(kinds), "stream_id": source.choice(("a", "a b", 1))}).encode(),
            json.dumps(source.choice(_VALUES)).encode(),
            source.choice((b"", b" ", b"\n" * 300, b"null", b"{}", b"[", b'"', b"\xef\xbb\xbf{}", b"{}{}", b"{} x")),
            b'{"type":"response.create","type":"nothing"}',
            b'{"type":"response.create","model":"quick","input":"hi","stream_id":"%b"}'
            % source.randbytes(8).hex().encode(),
            "".join(chr(source.choice((0x20, 0xE9, 0xFFFF, 0x1F98A))) for _ in range(40)).encode(),
        )
    )


def be_well(source: random.Random) -> bytes:
    return json.dumps(draw_create(source)).encode()


_MESSAGES: tuple[tuple[str, Callable[[random.Random], bytes]], ...] = (
    ("valid", be_well),
    ("bytes mutated", mutate_bytes),
    ("bytes mutated", mutate_bytes),
    ("structure mutated", mutate_structure),
    ("structure mutated", mutate_structure),
    ("types mutated", mutate_types),
    ("inflated", inflate),
    ("no create", be_no_create),
)


def draw_message(source: random.Random) -> Sent:
    """Any message, or frames that the connection has to live through."""
    chance = source.random()
    if chance < 0.05:
        return Sent("binary", _frame(source, BINARY, source.randbytes(source.randrange(200))), answers=1)
    if chance < 0.1:
        opcode = source.choice((PING, PONG))
        return Sent("ping or pong", _frame(source, opcode, source.randbytes(source.randrange(126))))
    if chance < 0.13:
        processed = {"type": "response.processed", "response_id": source.choice(_VALUES)}
        return Sent("processed", _frame(source, TEXT, json.dumps(processed).encode()))
    kind, make = source.choice(_MESSAGES)
    text = make(source)
    if chance < 0.8:
        return Sent(kind, _frame(source, TEXT, text), answers=1)
    return Sent(f"{kind}, in fragments", b"".join(_fragments(source, text)), answers=1)


# ---------------------------------------------------------------- what ends a connection

_RULES, _UTF8, _SIZE = frozenset({1002}), frozenset({1007}), frozenset({1009})
_NO_UTF8 = (b"\xff", b"\xc0\xaf", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82", b"\x80", b"\xf0\x9f\xa6")


def draw_breach(source: random.Random) -> Sent:
    """Frames that break the rules of the protocol, or end the connection by them."""
    kind, codes, make = source.choice(_BREACHES)
    return Sent(kind, make(source), codes=codes)


def _reserved_bits(source: random.Random) -> bytes:
    frame = bytearray(_frame(source, source.choice((TEXT, BINARY, PING)), b"{}"))
    frame[0] |= source.randrange(1, 8) << 4
    return bytes(frame)


def _reserved_opcode(source: random.Random) -> bytes:
    return _frame(source, source.choice((3, 4, 5, 6, 7, 11, 12, 13, 14, 15)), source.randbytes(3))


def _unmasked(source: random.Random) -> bytes:
    return encode_frame(source.choice((TEXT, PING, CLOSE)), b"{}")


def _long_control(source: random.Random) -> bytes:
    return _frame(source, source.choice((PING, PONG, CLOSE)), b"\x03\xe8" + b"x" * source.choice((124, 300, 70_000)))


def _control_in_pieces(source: random.Random) -> bytes:
    return _frame(source, source.choice((PING, PONG, CLOSE)), b"\x03\xe8", final=False)


def _continuation_of_nothing(source: random.Random) -> bytes:
    return _frame(source, CONTINUATION, b"{}", final=source.random() < 0.5)


def _message_in_message(source: random.Random) -> bytes:
    return _frame(source, TEXT, b'{"type":', final=False) + _frame(source, source.choice((TEXT, BINARY)), b"{}")


def _too_long(source: random.Random) -> bytes:
    length = source.choice((MAX_MESSAGE_BYTES + 1, 1 << 31, (1 << 62) + 5))
    return bytes([0x80 | TEXT, 0xFF]) + length.to_bytes(8, "big") + source.randbytes(4) + b"{"


def _too_long_in_sum(source: random.Random) -> bytes:
    piece = b"x" * (MAX_MESSAGE_BYTES // 3)
    return _frame(source, TEXT, piece, final=False) + _frame(source, CONTINUATION, piece, final=False) * 3


def _no_utf8(source: random.Random) -> bytes:
    text = b'{"type":"response.create","input":"%b"}' % source.choice(_NO_UTF8)
    if source.random() < 0.5:
        return _frame(source, TEXT, text)
    return b"".join(_fragments(source, text))


def _proper_close(source: random.Random) -> bytes:
    code = source.choice((1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 3000, 3999, 4000, 4999))
    return _frame(source, CLOSE, struct.pack(">H", code) + "bye 🦊".encode()[: source.randrange(5)])


def _bad_close(source: random.Random) -> bytes:
    code = source.choice((0, 1, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65_535))
    return _frame(source, CLOSE, source.choice((b"\x03", struct.pack(">H", code))))


def _bad_reason(source: random.Random) -> bytes:
    return _frame(source, CLOSE, b"\x03\xe8" + source.choice(_NO_UTF8))


def _empty_close(source: random.Random) -> bytes:
    return _frame(source, CLOSE, b"")


_BREACHES: tuple[tuple[str, frozenset[int], Callable[[random.Random], bytes]], ...] = (
    ("reserved bits", _RULES, _reserved_bits),
    ("reserved opcode", _RULES, _reserved_opcode),
    ("not masked", _RULES, _unmasked),
    ("control frame too long", _RULES | _SIZE, _long_control),
    ("control frame in pieces", _RULES, _control_in_pieces),
    ("continuation of nothing", _RULES, _continuation_of_nothing),
    ("message inside a message", _RULES, _message_in_message),
    ("message too long", _SIZE, _too_long),
    ("message too long in sum", _SIZE, _too_long_in_sum),
    ("text that is no UTF-8", _UTF8, _no_utf8),
    ("Close", frozenset(), _proper_close),
    ("Close without a code", frozenset(), _empty_close),
    ("Close with a wrong code", _RULES, _bad_close),
    ("Close with a wrong reason", _UTF8 | _RULES, _bad_reason),
)


def draw_noise(source: random.Random) -> Sent:
    """Bytes without any meaning, or a frame with some of its bytes changed; what comes of it nobody knows."""
    if source.random() < 0.5:
        return Sent("noise", source.randbytes(source.randrange(1, 400)))
    frame = bytearray(_frame(source, TEXT, be_well(source)))
    for _ in range(source.randint(1, 3)):
        # Most often in the head, where it hurts.
        frame[source.randrange(8 if source.random() < 0.7 else len(frame))] = source.randrange(256)
    return Sent("frame with other bytes", bytes(frame))


# ---------------------------------------------------------------- inside


def _frame(source: random.Random, opcode: int, payload: bytes, *, final: bool = True) -> bytes:
    return encode_frame(opcode, payload, final=final, mask=source.randbytes(4))


def _fragments(source: random.Random, text: bytes) -> Iterator[bytes]:
    """One message in pieces, empty ones among them, with control frames in between."""
    cuts = sorted(source.randrange(len(text) + 1) for _ in range(source.randint(1, 6)))
    pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    for place, piece in enumerate(pieces):
        if place and source.random() < 0.4:
            yield _frame(source, source.choice((PING, PONG)), source.randbytes(source.randrange(20)))
        yield _frame(source, CONTINUATION if place else TEXT, piece, final=place == len(pieces) - 1)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value inside, as the holder and its key."""
    members = list(value.items()) if isinstance(value, dict) else list(enumerate(value))
    for key, part in members:
        yield value, key
        if isinstance(part, dict | list):
            yield from _places(part)
