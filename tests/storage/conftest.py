import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from sqlalchemy import URL

from gateway.ports import Store
from gateway.storage.engine import create_file, open_engine
from gateway.storage.memory import MemoryStore
from gateway.storage.migrations import upgrade
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.store import SqlStore
from tests.postgres import PostgresServer

DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]

OpenStore = Callable[..., Awaitable[Store]]
OpenSqlStore = Callable[..., Awaitable[SqlStore]]


def make_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> URL:
    """Return the URL of a database of the test's own: a copy of one that was migrated once."""
    if kind == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_file"), tmp_path / "responses.db")
        return database_url(f"sqlite:///{tmp_path}/responses.db")
    server = request.getfixturevalue("postgres_server")
    return database_url(server.create_database(request.getfixturevalue("migrated_name")))


def migrate(url: URL) -> None:
    create_file(url)
    engine = open_engine(StoreSettings(url=url))
    upgrade(engine)
    engine.dispose()


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite database with the tables of today."""
    path = tmp_path_factory.mktemp("migrated") / "responses.db"
    migrate(database_url(f"sqlite:///{path}"))
    return path


@pytest.fixture(scope="session")
def migrated_name(postgres_server: PostgresServer) -> str:
    """The name of a PostgreSQL database with the tables of today."""
    url = database_url(postgres_server.create_database())
    migrate(url)
    return url.database


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> URL:
    """The URL of an empty database that has its tables."""
    return make_url(request.param, request, tmp_path)


@pytest.fixture(params=DATABASES)
def bare_database(request: pytest.FixtureRequest, tmp_path: Path) -> URL:
    """The URL of a database that nobody migrated yet."""
    if request.param == "sqlite":
        return database_url(f"sqlite:///{tmp_path}/responses.db")
    return database_url(request.getfixturevalue("postgres_database"))


@pytest.fixture
async def open_sql_store(database: URL) -> AsyncIterator[OpenSqlStore]:
    """Opens stores on one database, as processes would, and closes them at the end."""
    stores = []

    async def open_one(**changes) -> SqlStore:
        store = SqlStore(StoreSettings(url=database, **{"auto_migrate": "always", **changes}))
        stores.append(store)
        await store.start()
        return store

    yield open_one
    for store in stores:
        await store.close()


@pytest.fixture(params=["memory", *DATABASES])
async def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[OpenStore]:
    """Opens a store of each kind."""
    stores = []

    async def open_one(**limits) -> Store:
        if request.param == "memory":
            store = MemoryStore(**limits)
        else:
            url = make_url(request.param, request, tmp_path)
            store = SqlStore(StoreSettings(url=url, auto_migrate="always", **limits))
        stores.append(store)
        await store.start()
        return store

    yield open_one
    for store in stores:
        await store.close()


@pytest.fixture
async def store(open_store: OpenStore) -> Store:
    return await open_store()


@pytest.fixture
async def sql_store(open_sql_store: OpenSqlStore) -> SqlStore:
    return await open_sql_store()
