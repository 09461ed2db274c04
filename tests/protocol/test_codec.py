import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol import codec
from gateway.protocol.items import Refusal

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


def test_numbers_next_to_escaped_surrogates_are_read_as_usual():
    assert codec.decode(b'["\\udfff", 1.5, 12]') == ["\udfff", 1.5, 12]


def test_conversion_names_the_path_of_what_does_not_fit():
    with pytest.raises(msgspec.ValidationError, match=r"\$\.refusal"):
        codec.convert({"type": "refusal", "refusal": 1}, Refusal)
    assert codec.convert({"type": "refusal", "refusal": "no"}, Refusal) == Refusal(refusal="no")
