"""Each error's place in the tree, and what it tells a caller."""

import pytest

from gateway.protocol import errors

TABLE = {
    errors.GatewayError: (500, "server_error", "server_error"),
    errors.InvalidRequest: (400, "invalid_request_error", "invalid_request"),
    errors.NotFound: (404, "invalid_request_error", "not_found"),
    errors.RequestTooLarge: (413, "invalid_request_error", "request_too_large"),
    errors.Unauthorized: (401, "invalid_request_error", "invalid_api_key"),
    errors.Forbidden: (403, "invalid_request_error", "forbidden"),
    errors.MethodNotAllowed: (405, "invalid_request_error", "method_not_allowed"),
    errors.TooManyInjections: (429, "rate_limit_error", "too_many_pending_injections"),
    errors.RateLimitExceeded: (429, "rate_limit_error", "rate_limit_exceeded"),
    errors.InsufficientQuota: (429, "insufficient_quota", "insufficient_quota"),
    errors.UpstreamError: (502, "upstream_error", "upstream_error"),
    errors.CompactionFailed: (502, "upstream_error", "compaction_failed"),
    errors.UpstreamUnavailable: (502, "upstream_error", "upstream_unavailable"),
    errors.UpstreamTimeout: (504, "upstream_error", "upstream_timeout"),
    errors.Unavailable: (503, "service_unavailable_error", "server_is_overloaded"),
    errors.StorageUnavailable: (503, "service_unavailable_error", "server_is_overloaded"),
}
OWN_CONSTRUCTORS = {
    errors.ResponseNotFound,
    errors.PreviousResponseNotFound,
    errors.ConversationNotFound,
    errors.ConversationLocked,
    errors.ItemNotFound,
    errors.StreamLimitReached,
    errors.ConnectionLimitReached,
    errors.ResourceLimitExceeded,
    errors.UpstreamRefused,
    errors.InternalError,
}


def every(kind: type) -> set[type]:
    return {kind}.union(*(every(sub) for sub in kind.__subclasses__() if sub.__module__ == errors.__name__))


def test_the_table_is_complete():
    assert every(errors.GatewayError) == {*TABLE, *OWN_CONSTRUCTORS}


@pytest.mark.parametrize("kind", TABLE)
def test_an_error_knows_its_status_type_and_code(kind):
    error = kind("It broke.")
    assert (error.status, error.type, error.code) == TABLE[kind]
    assert (error.message, str(error), error.param, error.details) == ("It broke.", "It broke.", None, {})


def test_code_and_param_can_be_given_for_one_error_alone():
    error = errors.InvalidRequest("No.", code="invalid_type", param="tools")
    assert (error.code, error.param) == ("invalid_type", "tools")
    assert errors.InvalidRequest("No.").code == "invalid_request"


def test_an_unknown_parent_is_named_but_not_at_any_length():
    error = errors.PreviousResponseNotFound("resp_1")
    assert error.message == "Previous response with id 'resp_1' not found."
    assert (error.status, error.code, error.param) == (400, "previous_response_not_found", "previous_response_id")
    assert len(errors.PreviousResponseNotFound("x" * 10_000).message) < 200


def test_errors_about_conversations_name_them_but_not_at_any_length():
    for kind, status, code in (
        (errors.ConversationNotFound, 404, "conversation_not_found"),
        (errors.ConversationLocked, 400, "conversation_locked"),
        (errors.ItemNotFound, 404, "item_not_found"),
    ):
        error = kind("some_1")
        assert (error.status, error.code) == (status, code)
        assert "'some_1'" in error.message
        assert len(kind("x" * 10_000).message) < 250
    assert errors.ConversationNotFound("c").param is None
    assert errors.ConversationNotFound("c", param="conversation").param == errors.ConversationLocked("c").param


def test_an_unknown_response_is_named_but_not_at_any_length():
    error = errors.ResponseNotFound("resp_1")
    assert error.message == "Response with id 'resp_1' not found."
    assert (error.status, error.code, error.param) == (404, "response_not_found", None)
    assert len(errors.ResponseNotFound("x" * 10_000).message) < 200


def test_a_connection_of_too_many_lanes_says_how_many():
    error = errors.StreamLimitReached(32)
    assert error.message == (
        "This WebSocket connection has reached its maximum number of distinct stream IDs (32). "
        "Reuse an existing stream_id or open a new WebSocket connection."
    )
    assert (error.status, error.code, error.param) == (400, "websocket_stream_limit_reached", "stream_id")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (3600, "60 minutes"), (60, "1 minute"), (60.0, "1 minute"), (1, "1 second"), (90, "90 seconds"),
        (0.5, "0.5 seconds"),
    ],
)  # fmt: skip
def test_a_connection_that_is_too_old_says_how_old(seconds, words):
    error = errors.ConnectionLimitReached(seconds)
    assert error.message == (
        f"Responses websocket connection limit reached ({words}). Create a new websocket connection to continue."
    )
    assert (error.status, error.code, error.param) == (400, "websocket_connection_limit_reached", None)


def test_a_limit_is_named_by_its_key_and_is_not_worth_a_retry():
    error = errors.ResourceLimitExceeded("max_retained_bytes", 42)
    assert (error.status, error.type, error.code) == (502, "upstream_error", "response_resource_limit_exceeded")
    assert error.details == {"resource": "max_retained_bytes", "limit": 42}
    assert error.should_retry is False
    assert "max_retained_bytes" in error.message
    assert "42" in error.message
    assert errors.ResourceLimitExceeded("r", 1, "Other words.").message == "Other words."


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (400, 400),
        (404, 404),
        (422, 422),
        (429, 429),
        (499, 499),
        (503, 503),
        (504, 504),
        (500, 502),
        (501, 502),
        (302, 502),
        (599, 502),
    ],
)
def test_an_upstreams_refusal_keeps_its_status_where_it_is_the_callers_business(given, status):
    error = errors.UpstreamRefused(
        "Slow down.", upstream_status=given, code="slow_down", type="rate_limit_error", param="model", retry_after=2.5
    )
    assert (error.status, error.upstream_status) == (status, given)
    assert (error.message, error.code, error.type, error.param) == (
        "Slow down.",
        "slow_down",
        "rate_limit_error",
        "model",
    )
    assert error.retry_after == 2.5
    assert errors.UpstreamRefused("m", upstream_status=400, code="c", type="t").retry_after is None


def test_what_is_busy_says_when_to_come_back():
    assert errors.Unavailable("Busy.").retry_after == 1.0
    assert errors.InvalidRequest("No.").retry_after is None


def test_an_internal_error_says_nothing_of_its_cause():
    error = errors.InternalError()
    assert (error.status, error.code) == (500, "server_error")
    assert "log" in error.message
