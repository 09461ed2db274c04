"""Streams of real engines, cut after any byte: the caller is told one end, and the right one.

The ordinary run takes a sample of the cuts; with `EVERY_CUT=1`, as `make conformance` sets it, all of them are made.
"""

import json
import os
import random
import re

import pytest
from conformance import capture as captures
from conformance.capture import Capture, Json
from conformance.verdict import judge_stream
from engine.doubles import Bench, Reply

from gateway.protocol import sse
from gateway.protocol.errors import UpstreamError

RECORDINGS = [
    "vllm-0.32.0/reasoning_stream",
    "vllm-0.32.0/tool_thinktool_stream",
    "vllm-0.32.0/unicode_stream",
    "vllm-0.32.0/reasoning_incomplete_stream",
    "llama.cpp-b11434-tiny-script/tool_tools2_stream",
]
EVERY_CUT = os.environ.get("EVERY_CUT") == "1"
SAMPLED = 100
NEAR_THE_END = 12
TERMINALS = {"response.completed", "response.incomplete", "response.failed", "error"}
VARYING = re.compile(r"_[0-9a-f]{32}\b")


class Cutter:
    """Plays one recording up to a byte, and holds what the caller is told against the recording.

    Args:
        capture: the recording.
        broken: the connection breaks at the cut; else the body ends there as if it were whole.
    """

    def __init__(self, capture: Capture, *, broken: bool) -> None:
        self._raw = capture.raw
        self._broken = broken
        self._bench = Bench()
        self._fields = {name: value for name, value in capture.request.items() if name not in ("model", "stream")}
        self._ended = f"response.{capture.status}"
        self._said = captures.said_in(capture.events)
        self._last = capture.raw.index(b"\n", capture.raw.rindex(b"data: {"))
        self._judged: set[str] = set()

    def places(self) -> list[int]:
        """The cuts to make: all, or some of everywhere and each one from shortly before the last event's end."""
        size = len(self._raw)
        if EVERY_CUT:
            return list(range(size + 1))
        # Seeded by the size: the same places in every run.
        anywhere = random.Random(size).sample(range(size), SAMPLED)
        return sorted({0, *anywhere, *range(self._last - NEAR_THE_END, size + 1)})

    async def cut(self, place: int) -> None:
        """Cut after so many bytes and examine what the caller is told."""
        rest = [UpstreamError("The connection broke.")] if self._broken else []
        reply = Reply([piece for piece in (self._raw[:place],) if piece] + rest)
        try:
            told = await self._bench.stream(reply, **self._fields)
        except UpstreamError:
            assert place == 0, "an answer that had begun was refused"
        else:
            # Only a line of data makes an event; a clean end closes it, a broken one does not.
            await self._examine(told, complete=place >= self._last + (2 if self._broken else 0))
        assert reply.closed + reply.retired == 1

    async def _examine(self, told: list[Json], *, complete: bool) -> None:
        ends = [event["type"] for event in told if event["type"] in TERMINALS]
        assert ends == [self._ended if complete else "response.failed"]
        assert (await self._bench.stored(told[-1]["response"]["id"]) is not None) == complete
        said = captures.said_in(told)
        assert len(said) <= len(self._said)
        for heard, meant in zip(said, self._said, strict=False):
            assert (heard.type, heard.name) == (meant.type, meant.name)
            assert meant.text.startswith(heard.text)
        if complete:
            assert said == self._said
        self._judge(told)

    def _judge(self, told: list[Json]) -> None:
        """Judge the stream by every rule, once for all cuts that only differ in minted ids."""
        stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in told)
        known = VARYING.sub("", stream)
        if known not in self._judged:
            assert judge_stream(stream.encode() + sse.DONE) == []
            self._judged.add(known)


@pytest.mark.checklist(35, 37)
@pytest.mark.timeout(600)
@pytest.mark.parametrize("broken", [False, True], ids=["ends", "breaks"])
@pytest.mark.parametrize("name", RECORDINGS)
async def test_every_cut_has_one_right_end(name: str, broken: bool) -> None:
    cutter = Cutter(captures.load(name), broken=broken)
    for place in cutter.places():
        await cutter.cut(place)
