import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol import codec
from gateway.protocol.items import Refusal
from gateway.protocol.requests import CreateFields

values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text('a\0\u2028é😀\udfff"\\'),
    ),
    lambda inner: st.one_of(st.lists(inner), st.dictionaries(st.text("kéy\udfff"), inner)),
    max_leaves=12,
)


@given(values)
def test_values_survive_the_round_trip(value):
    assert codec.decode(codec.encode(value)) == value
    assert json.loads(codec.encode(value)) == value


def test_text_that_utf8_cannot_carry_is_escaped():
    assert codec.encode({"a": "é\ud83d"}) == b'{"a":"\\u00e9\\ud83d"}'
    assert codec.encode(Refusal(refusal="\udfff")) == b'{"type":"refusal","refusal":"\\udfff"}'
    assert codec.decode(b'"\\udfff"') == "\udfff"


def test_ordinary_text_is_not_escaped():
    assert codec.encode("é😀\u2028") == '"é😀\u2028"'.encode()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"{} {}", b"nul", b"NaN", b"[Infinity]", b'{"a":-Infinity}', b"1e999", b"[-1e999]", b'{"a":"\xff"}',
        b"'a'", b"[1,]",
        b"[" * 100_000, b'{"\\udfff":NaN}', b'["\\udfff",1e999]', b'["\\udfff"' + b",[" * 100_000,
    ],
)  # fmt: skip
def test_what_is_not_json_is_a_value_error(data):
    with pytest.raises(ValueError, match=r"."):
        codec.decode(data)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"[[[[\\"[[":'])
@pytest.mark.parametrize("inner", [b"1", b'"\\ud800"', b'"]]]]}}}}"', b'"\\"]]]]"'])
def test_nesting_is_bounded_whatever_else_the_text_holds(opening, inner):
    closing = b"]" if opening == b"[" else b"}"
    for levels, fits in ((codec.MAX_DEPTH, True), (codec.MAX_DEPTH + 1, False)):
        text = opening * levels + inner + closing * levels
        if fits:
            assert codec.encode(codec.decode(text))
        else:
            with pytest.raises(codec.TooDeepError, match="nested deeper than 256 levels"):
                codec.decode(text)
            assert codec.decode(text, max_depth=None)


@given(st.recursive(st.text('[{]}"\\'), st.lists, max_leaves=30), st.integers(0, 4))
def test_depth_is_what_the_lists_say(value, most):
    depth, level = 0, [value]
    while any(isinstance(one, list) for one in level):
        depth, level = depth + 1, [member for one in level if isinstance(one, list) for member in one]
    text = json.dumps(value).encode()
    if depth > most:
        with pytest.raises(codec.TooDeepError):
            codec.decode(text, max_depth=most)
    else:
        assert codec.decode(text, max_depth=most) == value


@pytest.mark.parametrize("text", [b"[" * 300, b'"' + b"[" * 300, b'"' + b'\\"' * 300 + b"{" * 300, b'"\\' + b"[" * 300])
def test_what_breaks_off_is_not_json_however_many_brackets_it_has(text):
    with pytest.raises(ValueError, match=r"."):
        codec.decode(text)


def test_only_utf8_is_json_a_byte_order_mark_is_passed_over():
    assert codec.decode(b"\xef\xbb\xbf{}") == {}
    for coding in ("utf-16", "utf-16-le", "utf-32"):
        with pytest.raises(ValueError, match=r"."):
            codec.decode('{"a":1}'.encode(coding))


def test_half_a_surrogate_pair_in_a_name_is_no_fault_of_the_rest():
    given = {"refusal": "\ud800", "\ud800": {"\udfff": 1}, "type": "refusal"}
    assert codec.convert(given, Refusal) == Refusal(refusal="\ud800")


@pytest.mark.parametrize(
    ("field", "kind"), [("temperature", "float"), ("stream", "bool"), ("tools", "array"), ("max_output_tokens", "int")]
)
def test_half_a_surrogate_pair_where_no_text_may_stand_is_named(field, kind):
    with pytest.raises(msgspec.ValidationError, match=rf"Expected `{kind}.*\$\.{field}"):
        codec.convert({field: "\ud800", "\ud800": 1, "model": "\ud800"}, CreateFields)
    with pytest.raises(msgspec.ValidationError, match=r"\$\.truncation"):
        codec.convert({"truncation": "\ud800"}, CreateFields)


def test_numbers_next_to_escaped_surrogates_are_read_as_usual():
    assert codec.decode(b'["\\udfff", 1.5, 12]') == ["\udfff", 1.5, 12]


def test_conversion_names_the_path_of_what_does_not_fit():
    with pytest.raises(msgspec.ValidationError, match=r"\$\.refusal"):
        codec.convert({"type": "refusal", "refusal": 1}, Refusal)
    assert codec.convert({"type": "refusal", "refusal": "no"}, Refusal) == Refusal(refusal="no")


def test_a_member_is_replaced_and_the_others_keep_every_byte():
    data = b'{"a": [1.00,  "\\u00e4"], "model":"x", "n":1e2, "big":123456789012345678901234567890}'
    replaced = codec.replace_member(data, "model", "y\u00e4")
    assert replaced == '{"a":[1.00,  "\\u00e4"],"model":"yä","n":1e2,"big":123456789012345678901234567890}'.encode()
    assert codec.decode(codec.replace_member(b"{}", "model", "y")) == {"model": "y"}


def test_a_member_is_replaced_beside_half_a_surrogate_pair():
    data = b'{"\\ud800":"\\udfff","model":"x"}'
    assert codec.decode(codec.replace_member(data, "model", "y")) == {"\ud800": "\udfff", "model": "y"}
