from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.credentials import check_principal, digest_key, read_bearer, read_key_id, write_key

KEY = write_key("abc123abc123", bytes(range(32)))


def test_a_key_is_told_by_its_id_and_its_digest():
    assert write_key("abc123abc123", bytes(range(32))) == f"rgw_abc123abc123_{bytes(range(32)).hex()}"
    assert read_key_id(KEY) == read_key_id(f" {KEY}\n") == read_key_id("abc123abc123") == "abc123abc123"
    assert digest_key(KEY) == sha256(KEY.encode()).hexdigest()


@pytest.mark.parametrize("scheme", ["Bearer ", "bearer ", "BEARER ", "Bearer   "])
@pytest.mark.parametrize("end", ["", " "])
def test_the_scheme_may_be_written_in_any_case(scheme, end):
    assert read_bearer(f"{scheme}{KEY}{end}".encode()) == ("abc123abc123", bytes.fromhex(digest_key(KEY)))


@pytest.mark.parametrize(
    "credential",
    [
        *("", "Bearer", "Bearer ", KEY, f"Basic {KEY}", f"Bearer{KEY}", f"Bearer x{KEY}", f"Bearer {KEY}x"),
        *(f"Bearer {KEY[:-1]}", f"Bearer {KEY.upper()}", f"Bearer {KEY}\n", f"Bearer\t{KEY}", f"Bearer {KEY} {KEY}"),
        *(f"Bearer {KEY},", f"Bearer {KEY.replace('abc', 'ÄBC')}", "Bearer rgw_abc123abc123_" + "٣" * 64),
    ],
)
def test_anything_else_is_no_key(credential):
    assert read_bearer(credential.encode()) is None


@given(st.binary(max_size=200))
def test_no_bytes_are_too_odd(credential):
    assert read_bearer(credential) is None


@pytest.mark.parametrize("name", ["a", "team-a", "https://issuer.example|me@example.com", "x" * 255])
def test_a_principal(name):
    assert check_principal(name) == name


@pytest.mark.parametrize("name", ["", "x" * 256, "two words", "a\n", "a\x00", "ä", "a\x7f", " "])
def test_no_principal(name):
    with pytest.raises(ValueError, match="printable ASCII"):
        check_principal(name)
