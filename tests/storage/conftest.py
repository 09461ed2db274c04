from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from sqlalchemy import URL

from gateway.ports import Store
from gateway.storage.memory import MemoryStore
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.store import SqlStore

DATABASES = ["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)]

OpenStore = Callable[..., Awaitable[Store]]
OpenSqlStore = Callable[..., Awaitable[SqlStore]]


def make_url(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> URL:
    if kind == "sqlite":
        return database_url(f"sqlite:///{tmp_path}/responses.db")
    return database_url(request.getfixturevalue("postgres_database"))


@pytest.fixture(params=DATABASES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> URL:
    """The URL of a database that nobody migrated yet."""
    return make_url(request.param, request, tmp_path)


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
