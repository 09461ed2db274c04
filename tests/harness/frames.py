"""The frames of a WebSocket: a codec of the tests' own, and what the text frames of the gateway say."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
TERMINALS = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})

Event = dict[str, Any]


@dataclass(frozen=True)
class Frame:
    """One frame as it arrived.

    Attributes:
        at: monotonic seconds at which it was read.
    """

    opcode: int
    payload: bytes
    final: bool
    at: float

    @property
    def event(self) -> Event:
        """What a text frame says; fails when it is not a JSON object with a type."""
        assert self.final, "the gateway fragments its messages"
        event = json.loads(self.payload)
        assert isinstance(event, dict), self.payload[:200]
        assert isinstance(event.get("type"), str), self.payload[:200]
        return event

    @property
    def close_code(self) -> int:
        return int.from_bytes(self.payload[:2], "big")

    @property
    def reason(self) -> str:
        return self.payload[2:].decode()


def encode_frame(opcode: int, payload: bytes, *, final: bool = True, mask: bytes | None = None) -> bytes:
    """Write one frame, masked as a client must when a mask is given."""
    masked = 0x80 if mask is not None else 0
    if len(payload) < 126:
        size = bytes([masked | len(payload)])
    elif len(payload) < 1 << 16:
        size = bytes([masked | 126]) + len(payload).to_bytes(2, "big")
    else:
        size = bytes([masked | 127]) + len(payload).to_bytes(8, "big")
    if mask is not None:
        pad = int.from_bytes((mask * (len(payload) // 4 + 1))[: len(payload)], "big")
        payload = mask + (int.from_bytes(payload, "big") ^ pad).to_bytes(len(payload), "big")
    return bytes([(0x80 if final else 0) | opcode]) + size + payload


def decode_frame(data: bytes | bytearray) -> tuple[int, bytes, bool, int] | None:
    """Read one frame of a server: opcode, payload, whether it is final, its size; None when it is not all there."""
    if len(data) < 2:
        return None
    assert not data[1] & 0x80, "a server must not mask its frames"
    assert not data[0] & 0x70, "no extension was agreed on"
    wide = {126: 2, 127: 8}.get(data[1], 0)
    begin = 2 + wide
    if len(data) < begin:
        return None
    length = int.from_bytes(data[2:begin], "big") if wide else data[1]
    if len(data) < begin + length:
        return None
    return data[0] & 0x0F, bytes(data[begin : begin + length]), bool(data[0] & 0x80), begin + length


def by_lane(events: Iterable[Event]) -> dict[str | None, list[Event]]:
    """Events by their lane; None is the default one."""
    lanes: dict[str | None, list[Event]] = {}
    for event in events:
        lanes.setdefault(event.get("stream_id"), []).append(event)
    return lanes


def by_response(events: Iterable[Event]) -> dict[str, list[Event]]:
    """Events by their response; within a lane everything after a `response.created` belongs to that response."""
    responses: dict[str, list[Event]] = {}
    for lane in by_lane(events).values():
        current: list[Event] = []
        for event in lane:
            if event["type"] == "response.created":
                current = responses.setdefault(event["response"]["id"], [])
            current.append(event)
    return responses
