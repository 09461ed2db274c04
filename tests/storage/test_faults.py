import pytest
from sqlalchemy.exc import OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from gateway.storage.faults import StorageNotReady, describe_fault, explain_fault, unavailable


def refused(state, text="secret text"):
    cause = Exception(text)
    cause.sqlstate = state
    return OperationalError("SELECT secret", {}, cause)


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ("53100", "The disk of the database is full."),
        ("53300", "The database has no connection left."),
        ("53200", "The database lacks resources."),
        ("57014", "The database did not answer within statement_timeout_seconds."),
        ("57P03", "The database is shutting down or starting."),
        (
            "42P01",
            "The database has no tables of this gateway yet; run `gateway db upgrade` with the same configuration.",
        ),
        ("XX000", "The database reports an error (SQLSTATE XX000)."),
        (None, "The database cannot be reached or lets nobody in."),
    ],
)
def test_every_state_has_its_sentence_and_nothing_else(state, says):
    assert describe_fault(refused(state)) == says
    assert unavailable(refused(state)).message == says


def test_only_the_operator_learns_why_nobody_is_let_in():
    text = 'to server at "::1" failed: Connection refused\n\tIs the server running?\n'
    said = 'to server at "::1" failed: Connection refused Is the server running?'
    assert explain_fault(refused(None, text)) == f"The database cannot be reached or lets nobody in. ({said})"
    assert len(explain_fault(refused(None, "x" * 100_000))) < 1100
    assert explain_fault(refused("53100")) == describe_fault(refused("53100"))
    assert explain_fault(StorageNotReady("Do this.")) == "Do this."


def test_other_faults_are_named_by_kind():
    assert describe_fault(PoolTimeout("secret")) == "The database has no connection left."
    assert describe_fault(OverflowError("secret")) == "The store met an unexpected OverflowError."
