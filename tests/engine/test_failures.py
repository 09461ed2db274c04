import logging

import pytest

from gateway.engine.failures import log_failure
from gateway.protocol.errors import ResourceLimitExceeded, UpstreamError, UpstreamRefused

REFUSED = UpstreamRefused(
    "your prompt 'secret words' is bad", upstream_status=400, code="invalid_request", type="invalid_request_error"
)


@pytest.mark.parametrize(
    ("error", "level", "fields"),
    [
        (UpstreamError("It broke.", code="server_error"), logging.WARNING, {"code": "server_error"}),
        (ResourceLimitExceeded("max_retained_bytes", 7), logging.WARNING, {"resource": "max_retained_bytes"}),
        (REFUSED, logging.INFO, {"code": "invalid_request", "upstream_status": 400}),
    ],
)
def test_the_log_says_why_a_response_failed(caplog, error, level, fields):
    with caplog.at_level(logging.INFO):
        log_failure(error)
    (record,) = caplog.records
    assert record.levelno == level
    assert fields.items() <= vars(record).items()


def test_a_refusals_words_stay_out_of_the_log(caplog):
    with caplog.at_level(logging.INFO):
        log_failure(REFUSED)
    assert "secret words" not in caplog.text
