"""What an error says of itself on the wire."""

from gateway.protocol import codec
from gateway.protocol.envelope import build_envelope
from gateway.protocol.errors import PreviousResponseNotFound, ResourceLimitExceeded, UpstreamRefused


def said_of(error):
    return codec.decode(codec.encode(build_envelope(error)))


def test_an_envelope_names_everything():
    assert said_of(PreviousResponseNotFound("resp_1")) == {
        "error": {
            "message": "Previous response with id 'resp_1' not found.",
            "type": "invalid_request_error",
            "param": "previous_response_id",
            "code": "previous_response_not_found",
        }
    }


def test_details_are_members_of_the_error_object():
    error = said_of(ResourceLimitExceeded("max_retained_bytes", 4096))["error"]
    assert (error["resource"], error["limit"], error["param"]) == ("max_retained_bytes", 4096, None)


def test_half_a_surrogate_pair_in_any_word_is_replaced():
    half = "a\ud800"
    error = UpstreamRefused(half, upstream_status=400, code=half, type=half, param=half)
    assert said_of(error) == {"error": dict.fromkeys(("message", "type", "param", "code"), "a?")}
