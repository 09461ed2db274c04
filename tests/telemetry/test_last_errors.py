from itertools import pairwise

import pytest

from gateway.telemetry.last_errors import LastErrors
from gateway.telemetry.logs import request_id_var, response_id_var
from gateway.telemetry.status import LAST_ERRORS


def test_the_newest_are_kept_and_come_first():
    errors = LastErrors()
    for number in range(LAST_ERRORS + 5):
        errors.note("sse", 500, f"code_{number}")
    told = errors.list()
    assert [error.code for error in told] == [f"code_{number}" for number in range(LAST_ERRORS + 4, 4, -1)]
    assert all(newer.time >= older.time for newer, older in pairwise(told))


def test_an_error_bears_the_ids_of_the_request_at_hand():
    errors = LastErrors()
    errors.note("websocket", 429, "a")
    tokens = request_id_var.set("req_1"), response_id_var.set("resp_1")
    errors.note("/v1/responses", 502, "b")
    for variable, token in zip((request_id_var, response_id_var), tokens, strict=True):
        variable.reset(token)
    newest, oldest = errors.list()
    assert (newest.request_id, newest.response_id, newest.route, newest.status) == (
        "req_1",
        "resp_1",
        "/v1/responses",
        502,
    )
    assert (oldest.request_id, oldest.response_id) == ("", None)


@pytest.mark.parametrize(
    ("code", "kept"),
    [
        ("context_length_exceeded", "context_length_exceeded"),
        ("BadRequestError", "BadRequestError"),
        ("400", "400"),
        ("the caller said: my password is hunter2", "upstream"),
        ("<script>", "upstream"),
        ("a\n", "upstream"),
        ("x" * 65, "upstream"),
        ("", "upstream"),
    ],
)
def test_only_plain_words_are_kept(code, kept):
    errors = LastErrors()
    errors.note("sse", 400, code)
    assert errors.list()[0].code == kept
