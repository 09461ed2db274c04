import json
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.refusals import MAX_MESSAGE_CHARS, parse_retry_after, read_refusal, redact

NOW = 1_800_000_000.0


def read(status: int, document: object = None, *, raw: bytes | None = b"", headers=None):
    body = raw if document is None else json.dumps(document).encode()
    return read_refusal(status, headers or {}, body, now=NOW)


def error(message: str, type: str, param: str | None, code: object) -> dict:
    return {"error": {"message": message, "type": type, "param": param, "code": code}}


# Bodies as vLLM 0.32 and llama.cpp b11434 sent them.
@pytest.mark.checklist(56)
@pytest.mark.parametrize(
    ("status", "body", "code", "param"),
    [
        (404, error("The model `nope` does not exist.", "NotFoundError", "model", 404), "model_not_found", "model"),
        (
            400,
            error(
                "This model's maximum context length is 16384 tokens. However, your prompt contains at least 16385.",
                "BadRequestError",
                "input_tokens",
                400,
            ),
            "context_length_exceeded",
            "input_tokens",
        ),
        (
            400,
            error(
                "The engine prompt length 16384 exceeds the max_model_len 16384.", "invalid_request_error", "input", 400
            ),
            "context_length_exceeded",
            "input",
        ),
        (
            400,
            {
                "error": {
                    "code": 400,
                    "message": "request (40003 tokens)",
                    "type": "exceed_context_size_error",
                    "n_ctx": 8,
                }
            },
            "context_length_exceeded",
            None,
        ),
        (
            400,
            error(
                "max_output_tokens=50000 cannot be greater than max_model_len=16384.",
                "BadRequestError",
                "max_output_tokens",
                400,
            ),
            "invalid_request",
            "max_output_tokens",
        ),
        (
            400,
            error("temperature must be in [0, 2]", "BadRequestError", "temperature", 400),
            "invalid_request",
            "temperature",
        ),
        (404, {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}, "not_found", None),
        (404, {"detail": "Not Found"}, "not_found", None),
        (405, {"detail": "Method Not Allowed"}, "invalid_request", None),
        (413, error("too long", "x", None, 413), "request_too_large", None),
        (429, error("queue full", "rate_limit_error", None, "insufficient_quota"), "insufficient_quota", None),
        (429, error("queue full", "rate_limit_error", None, 429), "rate_limit_exceeded", None),
        (503, error("busy", "overloaded", None, 503), "server_is_overloaded", None),
        (504, error("late", "x", None, None), "upstream_timeout", None),
    ],
)
def test_status_message_type_and_param_are_kept(status, body, code, param):
    refused = read(status, body)
    assert (refused.status, refused.upstream_status, refused.code, refused.param) == (status, status, code, param)
    words = body.get("error") or {"message": body["detail"]}
    assert refused.message == words["message"]
    assert refused.type == words.get("type", "invalid_request_error")


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize(
    "body", [{"error": "Unauthorized"}, error("Incorrect key sk-123", "x", None, "invalid_api_key")]
)
def test_refused_credentials_are_the_gateways_fault(status, body):
    refused = read(status, body)
    assert (refused.status, refused.code, refused.type) == (502, "upstream_auth_failed", "upstream_error")
    assert "api_key" in refused.message
    assert "sk-123" not in refused.message


@pytest.mark.parametrize("status", [500, 501, 502, 505])
def test_other_server_errors_become_502(status):
    refused = read(status, error("engine died", "InternalServerError", None, status))
    assert (refused.status, refused.upstream_status, refused.code) == (502, status, "upstream_error")
    assert refused.message == "engine died"


@pytest.mark.parametrize("status", [400, 429, 503])
@pytest.mark.parametrize("raw", [b"", b"<html>Too busy</html>", b"\xff\xfe", b'{"error":'])
def test_bodies_that_are_not_json_become_502(status, raw):
    refused = read(status, raw=raw, headers={"retry-after": "3"})
    assert (refused.status, refused.code, refused.retry_after) == (502, "upstream_error", 3.0)
    assert "html" not in refused.message


def test_a_body_that_is_nested_too_deeply_is_named_so():
    nested = b'{"error":' * 300 + b"1" + b"}" * 300
    refused = read(400, raw=nested, headers={"retry-after": "3"})
    assert (refused.status, refused.code, refused.retry_after) == (502, "upstream_error", 3.0)
    assert refused.message == "The inference server answered 400 with a body that is nested deeper than 256 levels."


@pytest.mark.parametrize("document", [[], "text", 5, {}, {"error": None}, {"error": []}, {"error": {"message": 7}}])
def test_json_without_an_envelope_still_has_a_message(document):
    refused = read(422, document)
    assert (refused.status, refused.code) == (422, "invalid_request")
    assert "422" in refused.message


def test_a_body_too_large_to_read_keeps_the_status():
    refused = read(400, raw=None)
    assert (refused.status, refused.code) == (400, "invalid_request")


def test_bare_string_error():
    assert read(400, {"error": "no such thing"}).message == "no such thing"


@pytest.mark.parametrize(
    ("document", "message", "param"),
    [
        ({"message": "m", "type": "t", "param": "p"}, "m", "p"),
        ({"message": "m", "error": None, "detail": []}, "m", None),
        ({"detail": [{"loc": ["body", "input", 0, "role"], "msg": "Field required"}]}, "input.0.role: Field required",
         "input.0.role"),
        ({"detail": [{"msg": "a"}, {"loc": ["body"], "msg": "b"}, {"loc": "x", "msg": 5}, 5]}, "a; b", None),
        ({"error": [{"loc": ["top_p"], "msg": "c"}] * 50}, "; ".join(["top_p: c"] * 8), "top_p"),
        ({"error": {"message": "half \ud800"}}, "half \ud800", None),
    ],
)  # fmt: skip
def test_other_spellings_keep_their_words(document, message, param):
    refused = read(422, document)
    assert (refused.status, refused.message, refused.param) == (422, message, param)


def test_a_body_nested_too_deeply_is_not_followed():
    refused = read(400, raw=b'{"error":' + b"[" * 100_000 + b"]" * 100_000 + b"}")
    assert (refused.status, refused.code) == (502, "upstream_error")


@pytest.mark.parametrize("status", [400, 429, 500, 503])
def test_the_gateways_own_key_is_never_repeated(status):
    key = "sk-own-0123456789"
    quoting = error("x" * (MAX_MESSAGE_CHARS - 5) + key, f"t-{key}", "p" * 120 + key, key)
    refused = read_refusal(status, {}, json.dumps(quoting).encode(), now=NOW, secret=key)
    for said in (refused.message, refused.code, refused.type, refused.param or ""):
        assert "sk-own" not in said
    assert read_refusal(400, {}, json.dumps({"detail": [{"msg": key}]}).encode(), now=NOW, secret=key).message == (
        "[redacted]"
    )


@pytest.mark.parametrize(("value", "secret"), [("a key", None), ("a key", ""), (5, "5"), (None, "x")])
def test_without_a_secret_or_a_text_nothing_is_redacted(value, secret):
    assert redact(value, secret) == value


@pytest.mark.checklist(56)
def test_long_messages_are_cut():
    assert len(read(400, error("x" * 100_000, "t" * 500, "p" * 500, None)).message) == MAX_MESSAGE_CHARS


@pytest.mark.parametrize("status", [204, 302, 418, 600])
def test_unexpected_statuses(status):
    assert read(status, {}).status == (418 if status == 418 else 502)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("soon", None),
        ("nan", None),
        ("inf", None),
        (formatdate(NOW + 30, usegmt=True), 30.0),
        (formatdate(NOW - 30, usegmt=True), 0.0),
        ("Fri, 15 Jan 2027 08:00:30 -0000", 30.0),
    ],
)
def test_retry_after(value, seconds):
    assert parse_retry_after(value, now=NOW) == seconds


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["error", "message", "code", "type", "param", "detail"]), inner)
    ),
    max_leaves=10,
)


@given(status=st.integers(400, 599), document=json_values, retry=st.text())
def test_every_answer_becomes_a_complete_error(status, document, retry):
    refused = read(status, document, headers={"retry-after": retry})
    assert isinstance(refused.code, str)
    assert refused.code
    assert not refused.code.isdigit()
    assert isinstance(refused.type, str)
    assert refused.message
    assert 400 <= refused.status < 600
