import pytest
from conformance.verdict import schema

from gateway.protocol import codec
from gateway.protocol.response import ConversationRef, Response, ResponseError, Usage, add_usage, read_usage


def test_a_response_has_every_field_a_client_relies_on():
    response = codec.decode(codec.encode(Response(id="resp_1", created_at=1, status="in_progress", model="m")))
    assert schema().check_response(response) == []
    assert (response["output"], response["usage"], response["error"]) == ([], None, None)
    assert (response["temperature"], response["top_p"], response["service_tier"]) == (1.0, 1.0, "default")


def test_a_limit_is_named_in_the_error_and_other_errors_say_less():
    plain = codec.decode(codec.encode(ResponseError(code="server_error", message="m")))
    assert plain == {"code": "server_error", "message": "m"}
    limit = ResponseError(code="c", message="m", param=None, resource="max_retained_bytes", limit=9)
    assert codec.decode(codec.encode(limit)) == {
        "code": "c",
        "message": "m",
        "param": None,
        "resource": "max_retained_bytes",
        "limit": 9,
    }


def test_a_conversation_is_an_object():
    response = Response(id="r", created_at=1, status="completed", model="m", conversation=ConversationRef(id="conv_1"))
    assert codec.decode(codec.encode(response))["conversation"] == {"id": "conv_1"}


FULL = {
    "input_tokens": 5,
    "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 1, "input_tokens_per_turn": [5]},
    "output_tokens": 7,
    "output_tokens_details": {"reasoning_tokens": 3, "tool_output_tokens": 0},
    "total_tokens": 12,
    "kv_transfer_params": {},
}


def test_usage_is_read_without_the_engines_own_fields():
    assert codec.decode(codec.encode(read_usage(FULL))) == {
        "input_tokens": 5,
        "input_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 1},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 12,
    }


@pytest.mark.parametrize("junk", [None, "12", -3, 1.5, True, [], {}])
def test_a_count_that_is_no_count_is_zero(junk):
    usage = read_usage({"input_tokens": junk, "input_tokens_details": junk, "output_tokens": 4, "total_tokens": junk})
    assert usage == Usage(output_tokens=4, total_tokens=4)
    assert b"true" not in codec.encode(usage)


@pytest.mark.parametrize("junk", [None, [], "usage", 3])
def test_no_usage_object_is_no_usage(junk):
    assert read_usage(junk) is None


def test_rounds_add_up_and_a_silent_round_adds_nothing():
    one = read_usage(FULL)
    assert add_usage(None, None) is None
    assert add_usage(one, None) == add_usage(None, one) == one
    two = add_usage(one, one)
    assert (two.input_tokens, two.output_tokens, two.total_tokens) == (10, 14, 24)
    assert (two.input_tokens_details.cached_tokens, two.input_tokens_details.cache_write_tokens) == (4, 2)
    assert two.output_tokens_details.reasoning_tokens == 6
