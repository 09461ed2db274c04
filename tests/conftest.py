from collections.abc import Iterator

import pytest

from tests.postgres import PostgresServer


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
