"""Which requests need the database, and that they fail before any inference when it takes no writes."""

import pytest
from engine.doubles import Bench, whole
from harness.engine import says

from gateway.protocol.errors import StorageUnavailable
from gateway.storage.memory import MemoryStore

DOWN = "The database is read-only."


class ReadOnlyStore(MemoryStore):
    """Can be read, takes no writes once `down`."""

    def __init__(self):
        super().__init__()
        self.down = False
        self.asked = 0

    async def verify(self):
        self.asked += 1
        if self.down:
            raise StorageUnavailable(DOWN)


@pytest.fixture
def store():
    return ReadOnlyStore()


@pytest.fixture
def bench(store):
    return Bench(store=store)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("need", ["stored", "stored by default", "continues", "refers"])
async def test_what_needs_the_database_fails_before_the_inference(bench, store, need, stream):
    first = await bench.answer(whole(says("first")), input="a")
    reference = {"type": "item_reference", "id": first["output"][0]["id"]}
    fields = {
        "stored": {"store": True},
        "stored by default": {},
        "continues": {"store": False, "previous_response_id": first["id"]},
        "refers": {"store": False, "input": [reference]},
    }[need]
    store.down = True
    with pytest.raises(StorageUnavailable, match=DOWN):
        await bench.plan(stream=stream, **fields)
    assert len(bench.upstream.calls) == 1


async def test_what_does_not_need_it_asks_nothing(bench, store):
    store.down = True
    answer = await bench.answer(whole(says("well")), store=False)
    assert answer["status"] == "completed"
    assert store.asked == 0
