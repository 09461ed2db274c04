import logging
from collections.abc import Iterator

import pytest
from property.profiles import load_profile

from tests.postgres import PostgresServer

load_profile()

_LEVELLED = ("", "gateway.audit", "uvicorn", "uvicorn.error", "alembic")


@pytest.fixture(scope="module", autouse=True)
def untouched_log_levels() -> Iterator[None]:
    """Leave no level behind that a command or a gateway in this process has set."""
    loggers = [logging.getLogger(name) for name in _LEVELLED]
    before = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, before, strict=True):
        logger.setLevel(level)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL server for the whole run; make a database of your own with `create_database()`."""
    server = PostgresServer()
    server.start()
    yield server
    server.stop()
    server.remove()


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    """An empty database shared by the whole run."""
    return postgres_server.create_database()


@pytest.fixture
def postgres_database(postgres_server: PostgresServer) -> str:
    """An empty database of this test's own."""
    return postgres_server.create_database()
