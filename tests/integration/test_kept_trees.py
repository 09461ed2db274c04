"""Trees of agents that are kept: copied and put back, removed, and continued by another process."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from harness.processes import run_command
from harness.upstream import Upstream
from integration.databases import DatabaseGateway
from integration.tree_moments import MOMENTS, SETTINGS, Scene


def run(*arguments: str) -> str:
    """Run the product's command, which has to succeed; return what it prints."""
    done = run_command(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def finish(scene: Scene) -> list[str]:
    """Have one more response of the parent's tree made, and return what is broken."""
    with scene.at(MOMENTS["terminal"], "sse") as visit:
        pass
    return scene.examine(visit)


def count(gateway: DatabaseGateway) -> Mapping[str, int]:
    """How many rows the database has."""
    tables = ("responses", "items", "agents")
    return {table: gateway.query(f"SELECT count(*) FROM {table}")[0][0] for table in tables}


@pytest.mark.full
def test_trees_are_copied_put_back_and_removed(tmp_path: Path, upstream: Upstream) -> None:
    first, second = (f"sqlite:///{tmp_path}/{name}.db" for name in ("first", "second"))
    with DatabaseGateway(tmp_path, upstream.url, first, SETTINGS) as gateway:
        scene = Scene(gateway, upstream, first)
        scene.begin()
        run("db", "backup", f"{tmp_path}/second.db", "--database", first)
        kept = count(gateway)
        assert finish(scene) == []
    with DatabaseGateway(tmp_path, upstream.url, second, SETTINGS) as restored:
        assert count(restored) == kept
        scene.move(restored, second)
        assert finish(scene) == []
        assert set(count(restored).values()) != {0}
        restored.change("UPDATE responses SET created_at = created_at - 7200")
        run("db", "purge", "--older-than", "1h", "--database", second)
        assert set(count(restored).values()) == {0}


@pytest.mark.full
@pytest.mark.postgres
def test_a_tree_goes_on_in_another_process(tmp_path: Path, upstream: Upstream, postgres_database: str) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    one, two = (DatabaseGateway(folder, upstream.url, postgres_database, SETTINGS) for folder in folders)
    with one, two:
        scene = Scene(one, upstream, postgres_database)
        scene.begin()
        for gateway in (two, one, two):
            scene.move(gateway, postgres_database)
            assert finish(scene) == []
        run("db", "purge", "--principal", "local", "--yes", "--database", postgres_database)
        assert set(count(one).values()) == {0}
