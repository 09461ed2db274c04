import json
import sqlite3
import time
from datetime import date
from types import SimpleNamespace

import pytest
from click.testing import CliRunner
from msgspec import structs
from sqlalchemy import func, select

from gateway.cli.db import command
from gateway.ports import Deletion, UsageCount, UsageFlush
from gateway.storage.engine import open_engine
from gateway.storage.migrations import find_head
from gateway.storage.rows import ResponseInsert, hide_response
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.tables import responses, usage
from gateway.storage.usage import add_usage
from tests.storage.samples import make_chain, make_item, make_response

HEAD = find_head()
KNOWN = ", ".join(f"{number:04d}" for number in range(1, int(HEAD) + 1))


@pytest.fixture
def path(tmp_path):
    return tmp_path / "responses.db"


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def url(request, path):
    return f"sqlite:///{path}" if request.param == "sqlite" else request.getfixturevalue("postgres_database")


def run(*arguments, answer=None):
    return CliRunner().invoke(command, arguments, input=answer)


def outcome(*arguments, answer=None):
    """Return the exit code and what is said below the line that names the database, the audit log aside."""
    result = run(*arguments, answer=answer)
    named, _, text = result.output.partition("\n")
    assert named.startswith("database: ")
    assert named in result.stderr
    return result.exit_code, "\n".join(line for line in text.splitlines() if not line.startswith("{"))


def audit(result):
    """Return the one record of the audit log."""
    (line,) = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    assert line["logger"] == "gateway.audit"
    return line


def test_goes_up_and_down(url):
    assert outcome("upgrade", "--database", url) == (0, f"The database is at revision {HEAD}.")
    assert outcome("upgrade", "--database", url) == (0, f"The database is at revision {HEAD} already.")
    assert outcome("check", "--database", url) == (0, f"The database is at revision {HEAD}, the newest.")
    assert outcome("current", "--database", url) == (0, HEAD)
    assert outcome("downgrade", "base", "--yes", "--database", url) == (0, "The database has no tables any more.")
    assert outcome("current", "--database", url) == (0, "none")
    code, text = outcome("check", "--database", url)
    assert code == 1
    assert text == (
        "error: The database has no tables of this gateway yet; run `gateway db upgrade` with the same configuration."
    )


def test_asks_before_it_deletes(url):
    run("upgrade", "--database", url)
    result = run("downgrade", "base", "--database", url, answer="n\n")
    assert result.exit_code == 1
    assert "may delete stored responses" in result.output
    assert outcome("current", "--database", url) == (0, HEAD)
    assert run("downgrade", "base", "--database", url, answer="y\n").exit_code == 0
    assert outcome("current", "--database", url) == (0, "none")


def test_looking_makes_no_file(path):
    for name in ("check", "current"):
        code, text = outcome(name, "--database", f"sqlite:///{path}")
        assert (code, text) == (1, "error: The database file does not exist or cannot be opened.")
    assert not path.exists()


def test_refuses_a_newer_database(path):
    run("upgrade", "--database", f"sqlite:///{path}")
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")
    connection.close()
    for name in (["check"], ["upgrade"], ["downgrade", "base", "--yes"]):
        code, text = outcome(*name, "--database", f"sqlite:///{path}")
        assert code == 1
        assert "9999, which this gateway does not know" in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("upgrade", "--database", "sqlite:////nowhere/a.db"), "The folder /nowhere of the database does not exist"),
        (
            ("check", "--database", "postgresql://u:secret@127.0.0.1:1/d"),
            "The database cannot be reached or lets nobody in. (",
        ),
        (("upgrade", "nonsense"), "There is no revision 'nonsense' to go to"),
    ],
)
def test_a_failure_is_one_line_and_status_one(arguments, says, path, monkeypatch):
    monkeypatch.setenv("GATEWAY_STORAGE__URL", f"sqlite:///{path}")
    code, text = outcome(*arguments)
    assert code == 1
    assert text.startswith("error: ")
    assert says in text
    assert "\n" not in text
    assert "secret" not in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("upgrade", "nonsense"), f"There is no revision 'nonsense' to go to; this gateway knows base, {KNOWN}, head."),
        (("downgrade", "nonsense", "--yes"), "There is no revision 'nonsense' to go to; this gateway knows base, "),
        (("downgrade", "-9", "--yes"), "There is no revision '-9' to go to; this gateway knows base, "),
        (("upgrade", "+9"), "There is no revision '+9' to go to; this gateway knows base, "),
        (("downgrade", "head", "--yes"), "The way from revision 0001 to head leads in the other direction."),
    ],
)
def test_a_revision_that_leads_nowhere(arguments, says, path):
    name, revision, *flags = arguments
    database = ("--database", f"sqlite:///{path}")
    assert outcome("upgrade", "0001", *database)[0] == 0
    code, text = outcome(name, *database, *flags, "--", revision)
    assert code == 1
    assert text.startswith(f"error: {says}")
    assert outcome("current", *database) == (0, "0001")


def test_reads_the_configuration(path, tmp_path):
    file = tmp_path / "gateway.toml"
    file.write_text(f'[storage]\nurl = "sqlite:///{path}"\n')
    assert outcome("upgrade", "--config", str(file))[0] == 0
    assert path.exists()
    assert outcome("current", "--set", f"storage.url=sqlite:///{path}") == (0, HEAD)


def test_names_the_database_without_its_password(path):
    assert run("upgrade", "--database", f"sqlite:///{path}").stderr.startswith(f"database: sqlite:///{path}\n")
    failed = run("check", "--database", "postgresql://u:hunter2@127.0.0.1:1/d")
    assert failed.stderr.splitlines()[0] == "database: postgresql://u:***@127.0.0.1:1/d"


def test_an_unusable_configuration_is_status_two():
    result = run("check", "--set", "storage.url=mysql://u:secret@h/d")
    assert result.exit_code == 2
    assert "storage.url" in result.output
    assert "secret" not in result.output


# ---------------------------------------------------------------- purging

DAY = 86_400


@pytest.fixture
def filled(url):
    """A database with a chain of two responses 40 days old, one of 10 days, and a deleted one of now."""
    run("upgrade", "--database", url)
    now = int(time.time())
    engine = open_engine(StoreSettings(url=database_url(url)))
    first, second = (structs.replace(response, created_at=now - 40 * DAY) for response in make_chain(2))
    young, deleted = make_response(make_item(), created_at=now - 10 * DAY), make_response(created_at=now)
    with engine.begin() as connection:
        ResponseInsert(connection.dialect)(connection, [first, second, young, deleted])
        hide_response(connection, Deletion(id=deleted.id, principal="local", at=now - 2 * 3600), again=False)
    engine.dispose()
    return url


def test_purges_what_is_past_its_retention(filled):
    assert outcome("purge", "--dry-run", "--database", filled) == (
        0,
        "To be removed: responses 3, items 4, conversations 0.",
    )
    assert outcome("purge", "--database", filled) == (0, "Removed: responses 3, items 4, conversations 0.")
    assert outcome("purge", "--database", filled) == (0, "Removed: responses 0, items 0, conversations 0.")


def test_purges_by_the_age_that_is_named(filled):
    forever = ("--set", "storage.retention_seconds=0", "--database", filled)
    assert outcome("purge", "--dry-run", *forever) == (0, "To be removed: responses 1, items 0, conversations 0.")
    assert outcome("purge", "--older-than", "5d", *forever) == (0, "Removed: responses 4, items 5, conversations 0.")


@pytest.mark.parametrize("age", ["0", "0d", "soon", "-1d", ""])
def test_refuses_an_age_that_cannot_be(path, age):
    result = run("purge", "--older-than", age, "--database", f"sqlite:///{path}")
    assert result.exit_code == 2
    assert "--older-than" in result.output
    assert not path.exists()


def test_purging_needs_the_newest_tables(url):
    run("upgrade", "0001", "--database", url)
    code, text = outcome("purge", "--database", url)
    assert (code, text.endswith("run `gateway db upgrade`.")) == (1, True)


def test_an_owner_gives_everything_to_another(filled):
    moving = ("assign-owner", "--from", "local", "--to", "team-a", "--database", filled)
    code, told = outcome(*moving, "--dry-run")
    assert code == 0
    assert told.startswith("To be moved: responses ")
    result = run(*moving, "--set", "telemetry.log_format=json", "--set", "telemetry.log_level=error")
    assert (result.exit_code, result.stdout.strip()) == (0, told.replace("To be moved", "Moved"))
    line = audit(result)
    assert (line["action"], line["outcome"]) == ("db assign-owner", "done")
    assert (line["principal"], line["former_principal"]) == ("team-a", "local")
    assert "responses 0, items 0" in run(*moving).stdout


@pytest.mark.parametrize("owner", ["", "a\nb"])
def test_no_owner_to_give_anything_to(url, owner):
    result = run("assign-owner", "--from", "local", "--to", owner, "--database", url)
    assert (result.exit_code, result.stdout) == (2, "")


# ---------------------------------------------------------------- all that one principal has


@pytest.fixture
def shared(url):
    """A database in which two principals have something."""
    run("upgrade", "--database", url)
    engine = open_engine(StoreSettings(url=database_url(url)))
    with engine.begin() as connection:
        insert = ResponseInsert(engine.dialect)
        insert(connection, [*make_chain(3, principal="ada"), *make_chain(2, principal="bob")])
        counts = [
            UsageCount(principal=name, day=date(2026, 9, day), model="m", responses=1)
            for name, day in (("ada", 1), ("ada", 2), ("bob", 1))
        ]
        add_usage(connection, UsageFlush(id="one", counts=counts))
    engine.dispose()
    return url


def counted(url):
    """Responses and rows of usage, by principal."""
    engine = open_engine(StoreSettings(url=database_url(url)))
    with engine.connect() as connection:
        found = [
            dict(connection.execute(select(table.c.principal, func.count()).group_by(table.c.principal)).all())
            for table in (responses, usage)
        ]
    engine.dispose()
    return found


def test_all_of_a_principal_is_removed_and_the_act_is_recorded(shared, monkeypatch):
    monkeypatch.setattr("gateway.cli.audit.pwd.getpwuid", lambda _: SimpleNamespace(pw_name="ops"))
    options = ("--database", shared, "--principal", "ada")
    assert outcome("purge", *options, "--dry-run") == (0, "To be removed: responses 3, items 6, conversations 0.")
    asked = run("purge", *options, answer="n\n")
    assert asked.exit_code == 1
    assert "Remove responses 3, items 6, conversations 0 of 'ada' for good?" in asked.output
    assert counted(shared) == [{"ada": 3, "bob": 2}, {"ada": 2, "bob": 1}]
    result = run("purge", *options, "--yes", "--set", "storage.retention_batch_responses=2")
    assert (result.exit_code, result.stdout) == (0, "Removed: responses 3, items 6, conversations 0.\n")
    line = audit(result)
    assert (line["action"], line["principal"], line["actor"]) == ("db purge", "ada", "ops")
    assert (line["removed_responses"], line["removed_items"], line["removed_usage"]) == (3, 6, 0)
    assert counted(shared) == [{"bob": 2}, {"ada": 2, "bob": 1}]
    result = run("purge", *options, "--yes", "--usage")
    assert (result.exit_code, result.stdout) == (
        0,
        "Removed: responses 0, items 0, conversations 0, rows of usage 2.\n",
    )
    assert counted(shared) == [{"bob": 2}, {"bob": 1}]


@pytest.mark.parametrize(
    "options", [("--principal", "ada", "--older-than", "1d"), ("--usage",), ("--yes",)], ids=" ".join
)
def test_what_does_not_go_together_is_refused(path, options):
    assert run("purge", "--database", f"sqlite:///{path}", *options).exit_code == 2


def test_what_is_done_to_the_database_is_audited(path, tmp_path):
    file = tmp_path / "audit.jsonl"
    place = ("--database", f"sqlite:///{path}", "--set", f"telemetry.audit_file={file}")
    for arguments in (
        ("upgrade",),
        ("upgrade",),
        ("current",),
        ("purge", "--dry-run"),
        ("purge",),
        ("downgrade", "nonsense", "--yes"),
        ("downgrade", "base", "--yes"),
    ):
        run(*arguments, *place)
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["action"], line["outcome"], line.get("revision")) for line in lines] == [
        ("db upgrade", "done", HEAD),
        ("db upgrade", "unchanged", HEAD),
        ("db purge", "done", None),
        ("db downgrade", "failed", None),
        ("db downgrade", "done", None),
    ]
    assert (lines[2]["removed_responses"], lines[2]["removed_items"]) == (0, 0)
    assert {line["object"] for line in lines} == {f"sqlite:///{path}"}


def test_a_copy_is_made_of_sqlite_alone_and_over_nothing(path, tmp_path):
    run("upgrade", "--database", f"sqlite:///{path}")
    taken = tmp_path / "taken"
    taken.touch()
    code, text = outcome("backup", "--database", f"sqlite:///{path}", str(taken))
    assert (code, text) == (1, f"error: {taken} cannot be made: File exists.")
    refused = run("backup", "--database", "postgresql://u:s3cret@h/d", str(tmp_path / "copy"))
    assert refused.exit_code == 2
    assert "pg_dump" in refused.stderr
    assert "s3cret" not in refused.output
