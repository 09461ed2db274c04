import logging
import re
from pathlib import Path

import msgspec
import pytest
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException, ValidationException

from gateway.protocol import errors
from gateway.protocol.envelope import ErrorEnvelope, build_envelope
from gateway.protocol.errors import (
    Forbidden,
    GatewayError,
    InternalError,
    InvalidRequest,
    ResourceLimitExceeded,
    Unavailable,
    UpstreamRefused,
)
from gateway.transport.wire_errors import from_exception, http_error

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "errors.md"


def header(error, name):
    return dict(http_error(error).headers).get(name)


def test_body_is_the_envelope_with_its_length():
    answer = http_error(InvalidRequest("Wrong.", param="model"))
    assert answer.status == 400
    sent = msgspec.json.decode(answer.body, type=ErrorEnvelope)
    assert sent == build_envelope(InvalidRequest("Wrong.", param="model"))
    assert dict(answer.headers)[b"content-length"] == b"%d" % len(answer.body)


@pytest.mark.parametrize(("seconds", "sent"), [(0.0, b"1"), (0.2, b"1"), (1.0, b"1"), (1.2, b"2"), (120, b"120")])
def test_retry_after_is_whole_seconds_rounded_up(seconds, sent):
    error = UpstreamRefused("Busy.", upstream_status=503, code="busy", type="server_error", retry_after=seconds)
    assert header(error, b"retry-after") == sent


def test_retry_headers_only_when_the_error_has_a_say():
    assert header(Forbidden("No."), b"retry-after") is None
    assert header(Forbidden("No."), b"x-should-retry") is None
    assert header(ResourceLimitExceeded("max_retained_bytes", 1), b"x-should-retry") == b"false"
    assert header(Unavailable("Later."), b"retry-after") == b"1"


def test_gateway_errors_pass_through():
    error = Forbidden("No.")
    assert from_exception(error) is error


def test_an_unforeseen_exception_is_logged_and_not_shown(caplog):
    with caplog.at_level(logging.ERROR):
        error = from_exception(RuntimeError("secret detail"))
    assert isinstance(error, InternalError)
    assert b"secret detail" not in http_error(error).body
    assert caplog.records[0].exc_info[1].args == ("secret detail",)


@pytest.mark.parametrize(
    ("raised", "status", "code"),
    [
        (NotFoundException(), 404, "route_not_found"),
        (MethodNotAllowedException(), 405, "method_not_allowed"),
        (HTTPException(status_code=413), 413, "request_too_large"),
        (HTTPException(status_code=426), 426, "upgrade_required"),
        (HTTPException(status_code=415, detail="Unsupported."), 415, "invalid_request"),
        (HTTPException(status_code=500), 500, "server_error"),
    ],
)
def test_the_frameworks_errors_get_the_same_envelope(raised, status, code):
    answer = http_error(from_exception(raised))
    assert answer.status == status
    assert msgspec.json.decode(answer.body)["error"]["code"] == code


def test_validation_names_the_field():
    raised = ValidationException(extra=[{"key": "limit", "message": "Expected `int`, got `str`"}])
    error = from_exception(raised)
    assert error.param == "limit"
    assert error.message == "Invalid 'limit': Expected `int`, got `str`."


def error_tree(root=GatewayError):
    yield root
    for child in root.__subclasses__():
        yield from error_tree(child)


def test_reference_page_lists_every_error_of_the_tree():
    rows = set(re.findall(r"^\| `(\w+)` \| (\d{3}|upstream's) \| `(\w+)` \|", REFERENCE.read_text(), re.MULTILINE))
    own = {error for error in error_tree() if error.__module__ == errors.__name__ and error is not GatewayError}
    variable = {UpstreamRefused}
    expected = {(error.code, str(error.status), error.type) for error in own - variable}
    assert expected <= rows
