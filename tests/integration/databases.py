"""Gateways on a database of the test's choice, and a look into that database past the gateway."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.client import client
from harness.processes import Gateway, free_port
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import NullPool, create_engine, text

from gateway.storage.settings import database_url


class DatabaseGateway(Gateway):
    """`gateway serve` on the database of this URL."""

    def __init__(
        self,
        folder: Path,
        upstream: str,
        database: str,
        settings: Mapping[str, str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(folder, upstream, {"storage.auto_migrate": "always", **(settings or {})}, env)
        self._arguments += ["--database", database]
        self.on_sqlite = database.startswith("sqlite")
        self._engine = create_engine(database_url(database), poolclass=NullPool)

    def rows(self, model: str | None = None) -> int:
        models = [found for (found,) in self.query("SELECT model FROM responses")]
        return len(models) if model is None else models.count(model)

    def query(self, statement: str) -> list[Any]:
        """Return the rows of a SELECT, or what a PRAGMA says."""
        with self._engine.connect() as connection:
            return list(connection.execute(text(statement)))

    def change(self, *statements: str) -> None:
        """Run statements on one connection, each in a transaction of its own."""
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            for statement in statements:
                connection.execute(text(statement))


class CountedGateway(DatabaseGateway):
    """A gateway whose questions to the database are counted."""

    def __init__(self, folder: Path, upstream: str, database: str, settings: dict[str, str]) -> None:
        self._admin_port = free_port()
        admin = {"admin.enabled": "true", "admin.bind": f"127.0.0.1:{self._admin_port}"}
        super().__init__(folder, upstream, database, {**admin, **settings})

    def reads(self) -> dict[str, int]:
        """Return how often each kind of question was put since the start, but for what is asked from time to time."""
        with client(self._admin_port) as operator:
            text = operator.get("/metrics").body.decode()
        families = {family.name: family for family in text_string_to_metric_families(text)}
        counts = {
            sample.labels["query"]: int(sample.value)
            for sample in families["gateway_storage_reads"].samples
            if sample.name.endswith("_total")
        }
        for name in ("probe", "background_orphans"):
            counts.pop(name, None)
        return counts
