"""Which keys of a set count."""

import pytest
from harness.issuer import Issuer

from gateway.transport.oidc.keys import SigningKeys


@pytest.fixture(scope="module")
def published():
    issuer = Issuer()
    issuer.add_key("rsa", "RS256")
    return issuer.published


def test_keys_are_found_by_their_ids(published):
    keys = SigningKeys({"keys": [*published.values(), {**published["first"], "kid": "rsa"}]})
    assert len(keys) == 3
    assert [key.key_type for key in keys.find("rsa")] == ["RSA", "EC"]
    assert not keys.find("unknown")
    assert not keys.find(None)


def test_an_only_key_needs_no_id(published):
    keys = SigningKeys({"keys": [{name: value for name, value in published["first"].items() if name != "kid"}]})
    assert len(keys.find(None)) == 1
    assert not keys.find("first")


@pytest.mark.parametrize(
    "entry",
    [
        None,
        "key",
        {},
        {"kty": "EC"},
        {"kty": "EC", "crv": "P-256", "x": "AAAA", "y": "AAAA"},
        {"kty": "AKP", "alg": "ML-DSA-44", "pub": "AAAA"},
        {"kty": ["RSA"]},
        {"kty": "RSA", "n": "A" * 341, "e": "AQAB"},
        {"kty": "RSA", "n": 65537, "e": "AQAB"},
        {"kty": "OKP", "crv": "Ed25519", "x": 1},
        {"kty": "oct", "k": "c2VjcmV0" * 8},
    ],
    ids=repr,
)
def test_an_entry_that_is_no_use_does_not_take_the_others_with_it(published, entry):
    keys = SigningKeys({"keys": [entry, published["first"]]})
    assert len(keys) == 1


@pytest.mark.parametrize("member", [{"use": "enc"}, {"key_ops": ["sign"]}, {"kid": 1}, {"use": None}])
def test_a_key_for_another_end_is_left_out(published, member):
    key = {name: value for name, value in published["first"].items() if name != "use" or "use" in member}
    assert len(SigningKeys({"keys": [{**key, **member}]})) == 0


@pytest.mark.parametrize("document", [{}, {"keys": None}, {"keys": {"first": {}}}])
def test_what_is_no_set_of_keys_is_refused(document):
    with pytest.raises(ValueError, match="'keys'"):
        SigningKeys(document)


def test_a_set_that_has_not_changed_stays_the_same_object(published):
    document = {"keys": [published["first"]]}
    keys = SigningKeys(document)
    assert keys.renewed({"keys": [dict(published["first"])]}) is keys
    assert keys.renewed({"keys": []}) is not keys
