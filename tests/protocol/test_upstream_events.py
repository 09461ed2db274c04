"""One parser for everything engines send."""

import json

import pytest

from gateway.protocol import upstream_events as up
from gateway.protocol.errors import UpstreamError
from gateway.protocol.events import HOSTED
from gateway.protocol.upstream_events import Failure, Hosted, Unknown, parse

KNOWN = {str(kind.__struct_config__.tag): kind for kind in up._Known.__args__}


def parsed(event, name=b""):
    return parse(name, json.dumps(event).encode())


@pytest.mark.parametrize("type_", sorted(KNOWN))
def test_every_field_may_be_missing_null_or_unknown(type_):
    kind = KNOWN[type_]
    bare = parsed({"type": type_})
    assert type(bare) is kind
    nulls = dict.fromkeys([*kind.__struct_fields__, "sequence_number", "agent", "obfuscation"])
    assert parsed({**nulls, "type": type_}) == bare


@pytest.mark.parametrize("type_", sorted(KNOWN))
def test_an_event_without_a_type_is_known_by_its_name(type_):
    assert parsed({}, type_.encode()) == parsed({"type": type_})


def test_fields_are_read():
    assert parsed(
        {"type": "response.output_text.delta", "item_id": "m", "output_index": 1, "content_index": 2, "delta": "é"}
    ) == up.TextDelta(item_id="m", output_index=1, index=2, delta="é")
    item = {"type": "message", "content": [{"deep": [1]}]}
    assert parsed({"type": "response.output_item.done", "item": item, "output_index": 3}) == up.ItemDone(
        item=item, output_index=3
    )


def test_escaped_surrogates_and_raw_line_separators_survive():
    assert parse(b"", b'{"type":"response.output_text.delta","delta":"\\ud83d"}') == up.TextDelta(delta="\ud83d")
    assert parse(b"", '{"type":"response.output_text.delta","delta":"\u2028"}'.encode()) == up.TextDelta(delta="\u2028")


@pytest.mark.parametrize(
    ("event", "message", "code"),
    [
        ({"type": "error", "message": "flat", "code": "busy"}, "flat", "busy"),
        ({"type": "error", "error": {"message": "nested", "code": "busy"}}, "nested", "busy"),
        ({"type": "error", "error": {"code": "busy"}, "message": "outer"}, "outer", "busy"),
        ({"error": {"message": "bare", "type": "BadRequestError", "param": None, "code": 400}}, "bare", "server_error"),
        ({"error": "just words"}, "just words", "server_error"),
        ({"type": "oops", "error": {"message": "odd"}}, "odd", "server_error"),
        ({"type": "error"}, "The upstream reported an error without a message.", "server_error"),
        (
            {"type": "error", "message": 5, "code": ""},
            "The upstream reported an error without a message.",
            "server_error",
        ),
        ({"type": "error", "message": "m" * 9999, "code": "c" * 65}, "m" * 4096, "server_error"),
        ({"type": "error", "message": "m", "code": "c" * 64}, "m", "c" * 64),
    ],
)
def test_failures_are_recognised_in_every_spelling(event, message, code):
    assert parsed(event) == Failure(message=message, code=code)


def test_a_failure_may_be_named_by_the_stream_alone():
    assert parsed({"message": "m"}, b"error") == Failure(message="m", code="server_error")


def test_a_known_event_with_an_error_member_is_no_failure():
    assert type(parsed({"type": "response.completed", "error": {"message": "m"}})) is up.Completed


@pytest.mark.parametrize("type_", sorted(HOSTED))
def test_hosted_events_pass_whole(type_):
    fields = {"type": type_, "item_id": "i", "output_index": 2, "extra": {"a": None}}
    assert parsed(fields) == Hosted(kind=type_, fields=fields, item_id="i", output_index=2)
    assert parsed({"type": type_, "item_id": 5, "output_index": True}) == Hosted(
        kind=type_, fields={"type": type_, "item_id": 5, "output_index": True}
    )


@pytest.mark.parametrize(
    ("event", "kind"), [({"type": "keepalive"}, "keepalive"), ({"type": 5}, ""), ({}, ""), ({"error": None}, "")]
)
def test_anything_else_is_unknown(event, kind):
    assert parsed(event) == Unknown(kind=kind)


def test_an_unreadable_name_is_unknown():
    assert parsed({}, b"\xff") == Unknown(kind="\ufffd")


@pytest.mark.parametrize("data", [b"", b"  ", b"[DONE]", b" [DONE] "])
def test_what_keeps_the_line_open_or_ends_it_is_no_event(data):
    assert parse(b"", data) is None


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{", "not JSON"),
        (b"[" * 100_000, "nested deeper than 256 levels"),
        (
            b'{"type":"response.output_text.annotation.added","annotation":' + b"[" * 300 + b"]" * 300 + b"}",
            "256 levels",
        ),
        (b'{"type":"response.created","response":' + b"[" * 300 + b"]" * 300 + b"}", "256 levels"),
        (b'{"type":"response.output_text.delta","\\ud800":1,"delta":5}', r"malformed.*\$.delta"),
        (b'{"type":"response.output_text.delta","output_index":"\\ud800"}', r"malformed.*\$.output_index"),
        (b'{"type":"response.output_text.delta","delta":"\xff"}', "not JSON"),
        (b"[]", "not a JSON object"),
        (b'"text"', "not a JSON object"),
        (b'{"type":"response.output_text.delta","delta":5}', r"malformed response.output_text.delta event.*\$.delta"),
        (b'{"type":"response.output_item.added","item":[]}', r"malformed response.output_item.added event"),
    ],
)
def test_what_cannot_be_an_event_is_the_upstreams_error(data, words):
    with pytest.raises(UpstreamError, match=words) as refused:
        parse(b"", data)
    assert refused.value.code == "upstream_invalid_event"
