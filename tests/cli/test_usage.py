"""`gateway usage`: what is read from the database, and how it is shown."""

import json
import re
from datetime import UTC, datetime, timedelta

import pytest
from click.testing import CliRunner

from gateway.cli import db
from gateway.cli.usage import command
from gateway.ports import UsageCount, UsageFlush
from gateway.storage.engine import open_engine
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.usage import add_usage

TODAY = datetime.now(UTC).date()
LONG_AGO = TODAY - timedelta(days=30)


def count(principal, day, model, tokens):
    return UsageCount(principal=principal, day=day, model=model, responses=1, input_tokens=tokens)


@pytest.fixture(scope="module")
def url(tmp_path_factory):
    url = f"sqlite:///{tmp_path_factory.mktemp('usage')}/responses.db"
    CliRunner().invoke(db.command, ["upgrade", "--database", url])
    engine = open_engine(StoreSettings(url=database_url(url)))
    counts = [count("ada", TODAY, "m", 1000), count("ada", LONG_AGO, "n", 20), count("bob", TODAY, "\x1b[31m", 3)]
    with engine.begin() as connection:
        add_usage(connection, UsageFlush(id="one", counts=counts))
    engine.dispose()
    return url


def run(*arguments):
    return CliRunner().invoke(command, arguments)


def rows(url, *arguments):
    result = run("--database", url, "--json", *arguments)
    assert result.exit_code == 0, result.output
    return [tuple(row.values())[:-3] for row in json.loads(result.stdout)]


def test_programs_get_every_sum(url):
    assert rows(url) == [("ada", 2, 1020), ("bob", 1, 3)]
    assert rows(url, "--principal", "ada", "--by", "day", "--by", "model", "--by", "day") == [
        (LONG_AGO.isoformat(), "n", 1, 20),
        (TODAY.isoformat(), "m", 1, 1000),
    ]
    assert rows(url, "--since", "7d") == [("ada", 1, 1000), ("bob", 1, 3)]
    assert rows(url, "--since", LONG_AGO.isoformat(), "--principal", "ada") == [("ada", 2, 1020)]
    assert rows(url, "--principal", "nobody") == []


def test_people_get_a_table_with_a_sum_and_nothing_that_moves_their_cursor(url):
    result = run("--database", url, "--by", "model")
    head, *body = [re.split(" +", line.strip()) for line in result.stdout.splitlines()]
    assert head == ["model", "responses", "input", "cached", "output", "reasoning"]
    assert body[0][0] == "[31m"
    assert body[-1][:3] == ["all", "3", "1\N{NARROW NO-BREAK SPACE}023"]
    assert "\x1b" not in result.stdout


def test_a_day_is_a_day(url):
    result = run("--database", url, "--since", "yesterday")
    assert result.exit_code == 2
    assert "2026-01-31" in result.output


def test_a_database_without_tables_is_a_fault(tmp_path):
    (tmp_path / "empty.db").touch()
    result = run("--database", f"sqlite:///{tmp_path}/empty.db")
    assert result.exit_code == 1
    assert "gateway db upgrade" in result.stderr
