import msgspec
import pytest
from msgspec import structs

from gateway.config.handover import unpack
from gateway.config.schema import AdminConfig, GatewayConfig, ServerConfig, StorageConfig
from gateway.config.secret import SecretUrl
from gateway.server import parent as module
from gateway.server.listeners import bind_listeners
from gateway.server.messages import ReadAgain, Task
from gateway.server.parent import _Parent

RUNNING = GatewayConfig(
    server=ServerConfig(port=0, workers=2),
    admin=AdminConfig(enabled=False),
    storage=StorageConfig(url=SecretUrl("postgresql://u:p@one/d")),
)


@pytest.fixture
def parent(tmp_path, monkeypatch):
    """A parent, and the tasks that it gives to the workers it starts."""
    tasks = []

    async def start(task, listener):
        tasks.append(task)

    monkeypatch.setattr(module.Child, "start", start)
    task = Task(
        version="1",
        number=0,
        control=-1,
        listener=-1,
        folder=str(tmp_path),
        config=msgspec.Raw(),
        file="gateway.toml",
        overrides=(),
        wait_upstream=None,
    )
    listeners = bind_listeners(RUNNING)
    yield _Parent(RUNNING, listeners, task), tasks
    listeners.close()


async def test_a_worker_is_told_what_it_is_and_what_is_in_effect(parent):
    running, tasks = parent
    await running._hire(2, 30)
    (task,) = tasks
    assert (task.number, task.file, task.wait_upstream) == (2, "gateway.toml", 30)
    assert unpack(bytes(task.config)) == RUNNING


async def test_a_successor_gets_what_was_reloaded_and_nothing_that_waits_for_a_restart(parent, monkeypatch):
    running, tasks = parent
    told = []
    monkeypatch.setattr(running._supervisor, "tell", told.append)
    read = structs.replace(
        RUNNING,
        server=structs.replace(RUNNING.server, drain_seconds=7.0, workers=8),
        storage=StorageConfig(url=SecretUrl("postgresql://u:p@other/d")),
    )
    reload = running.reload(read)
    assert [change.path for change in reload.applied] == ["server.drain_seconds"]
    assert told == [ReadAgain()]
    await running._hire(1, None)
    config = unpack(bytes(tasks[0].config))
    assert (config.server.drain_seconds, config.server.workers) == (7.0, 2)
    assert config.storage == RUNNING.storage
