import json

import pytest

from gateway.upstream.simulated.fixture import Fixture, find_fixture


@pytest.mark.parametrize(("size", "chunk"), [(8000, 1), (8000, 1024), (1, 1), (10, 100)])
def test_stream(size, chunk):
    *blocks, end = Fixture(size, chunk).stream().split(b"\n\n")[:-1]
    assert end == b"data: [DONE]"
    events = [json.loads(block.removeprefix(b"data: ")) for block in blocks]
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    deltas = [event["delta"] for event in events if "delta" in event]
    assert "".join(deltas) == "x" * size
    assert {len(delta) for delta in deltas[:-1]} <= {chunk}
    assert events[-1]["response"] == json.loads(Fixture(size, chunk).document())
    assert [event["type"].removeprefix("response.") for event in events if "delta" not in event] == [
        "created", "in_progress", "output_item.added", "content_part.added",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip


def test_known_sizes():
    """Sizes of the lines by which the limits of other gateways were once calculated."""
    lines = Fixture(8000, 1).stream().split(b"\n")
    deltas = [line for line in lines if b"output_text.delta" in line]
    assert len(deltas[999]) == 137
    assert max(map(len, lines)) == 8364
    coarse = Fixture(8000, 1024).stream().split(b"\n")
    assert sum(len(line) for line in coarse if line != b"data: [DONE]") == 42_775


@pytest.mark.parametrize(
    "name",
    [
        "fixture",
        "fixture-8000",
        "fixture-0-1",
        "fixture-1-0",
        "fixture-1-1-1",
        "fixture-100000000-1000",
        "fixture-9000000-1",
    ],
)
def test_names_that_are_no_fixture(name):
    assert find_fixture(name) is None


def test_name():
    assert find_fixture("fixture-220000-1024") == Fixture(220_000, 1024)


async def test_served_whatever_else_is_asked(ask):
    async with ask("fixture-100-7", include=["nonsense"], input=None) as response:
        assert await response.read() == Fixture(100, 7).document()
    async with ask("fixture-100-7", stream=True) as response:
        assert response.headers["Content-Length"] == str(len(Fixture(100, 7).stream()))
        assert await response.read() == Fixture(100, 7).stream()
