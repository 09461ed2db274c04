"""Equal answers must not fail for being finely cut: the sizes at which a gateway of this kind was seen to fail.

The inference server is the product's own simulator, whose `fixture-SIZE-CHUNK` models give SIZE bytes in CHUNK-byte
deltas with constant ids and repeated full snapshots.
"""

from collections.abc import Iterator

import pytest
from conformance.verdict import judge_stream
from harness.client import create
from harness.processes import Gateway, Simulator


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    folder = tmp_path_factory.mktemp("reproduction")
    with Simulator(folder) as simulator, Gateway(folder, simulator.url) as gateway:
        yield gateway


@pytest.mark.parametrize(("size", "chunk"), [(8000, 1), (8000, 1024), (220_000, 1024)])
def test_the_answer_arrives_whole(simulated: Gateway, size: int, chunk: int) -> None:
    model = f"fixture-{size}-{chunk}"
    answer = create(simulated.port, {"model": model, "input": "size reproduction", "stream": True, "store": True})
    assert answer.status == 200, answer.body
    assert judge_stream(answer.body) == []
    assert len([event for event in answer.events if event["type"] == "response.output_text.delta"]) == -(-size // chunk)
    assert answer.deltas() == "x" * size
    assert answer.final["status"] == "completed"
    assert simulated.rows(model) == 1


def test_the_answer_as_json(simulated: Gateway) -> None:
    answer = create(simulated.port, {"model": "fixture-8000-1", "input": "size reproduction"})
    assert answer.json["output"][0]["content"][0]["text"] == "x" * 8000
