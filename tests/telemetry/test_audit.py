import io
import logging
import stat

import msgspec
import pytest
from harness.logs import restored_logging

from gateway.telemetry.audit import note_action
from gateway.telemetry.logs import configure_logging


@pytest.fixture
def log(tmp_path):
    """The audit file, and what is on the log besides."""
    with restored_logging():
        yield tmp_path / "audit.jsonl", io.StringIO()


def note(outcome):
    note_action("keys create", actor="ada", object="k1", outcome=outcome, principal="team-a")


def read(text):
    return [msgspec.json.decode(line) for line in text.splitlines()]


def test_each_record_is_a_line_in_a_file_of_the_owners_own(log):
    file, stream = log
    configure_logging("error", "console", stream, 3, audit_file=str(file))
    note("done")
    note("failed")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    lines = read(file.read_text())
    assert [line["outcome"] for line in lines] == ["done", "failed"]
    assert lines[0].pop("time").startswith("20")
    assert lines[0] == {
        "level": "info",
        "logger": "gateway.audit",
        "message": "keys create: done",
        "worker": 3,
        "action": "keys create",
        "actor": "ada",
        "object": "k1",
        "outcome": "done",
        "principal": "team-a",
    }
    assert len(stream.getvalue().splitlines()) == 2


def test_a_file_that_is_moved_away_is_made_anew(log):
    file, stream = log
    configure_logging("info", "json", stream, audit_file=str(file))
    note("done")
    file.rename(file.with_suffix(".1"))
    note("failed")
    assert [line["outcome"] for line in read(file.read_text())] == ["failed"]


def test_a_file_that_cannot_be_written_is_an_error_in_the_log_and_no_more(log):
    file, stream = log
    configure_logging("error", "json", stream, audit_file=str(file / "missing"))
    note("done")
    error, record = read(stream.getvalue())
    assert (error["level"], error["logger"]) == ("error", "gateway.server")
    assert error["message"].startswith("[telemetry] audit_file ")
    assert error["message"].endswith("cannot be written: No such file or directory")
    assert record["action"] == "keys create"


def test_without_a_file_there_is_the_log_alone(log):
    file, stream = log
    configure_logging("info", "json", stream, audit_file=str(file))
    configure_logging("info", "json", stream)
    note("done")
    assert not file.exists()
    assert logging.getLogger("gateway.audit").handlers == []
