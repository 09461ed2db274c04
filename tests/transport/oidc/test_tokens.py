"""What makes a token good, and what does not."""

import base64
import hmac
import json

import pytest
from harness.issuer import encode_part
from hypothesis import given
from hypothesis import strategies as st
from joserfc.jwk import OctKey
from transport.oidc.setting import Setting

from gateway.protocol.errors import Forbidden, Unauthorized
from gateway.transport.oidc.keys import SigningKeys
from gateway.transport.oidc.tokens import TokenReader


@pytest.mark.parametrize("algorithm", ["RS256", "ES256", "Ed25519"])
async def test_a_good_token_names_its_caller(setting, algorithm):
    setting.issuer.add_key("k", algorithm)
    identity = await setting.authenticator.authenticate(setting.bearer(kid="k", sub="bob"))
    assert identity.principal == f"{setting.issuer.url}#bob"
    assert identity.expires_at == setting.clock.now() + 300 + 30
    assert identity.key_id is None


async def test_edwards_signatures_count_under_their_former_name_too(setting):
    setting.issuer.add_key("k", "Ed25519")
    assert await setting.who(kid="k", header={"alg": "EdDSA"})


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"exp": 999_970}, "has expired"),
        ({"exp": None}, "exp"),
        ({"exp": "1000300"}, "'exp'"),
        ({"exp": True}, "'exp'"),
        ({"nbf": 1_000_031}, "'nbf'"),
        ({"iat": 1_000_031}, "'iat'"),
        ({"iat": [1]}, "'iat'"),
        ({"aud": "somebody-else"}, "'aud'"),
        ({"aud": []}, "'aud'"),
        ({"aud": ["a", 1]}, "'aud'"),
        ({"aud": None}, "aud"),
        ({"iss": "http://127.0.0.1:1/"}, "'iss'"),
        ({"iss": "HTTP://127.0.0.1:1"}, "'iss'"),
        ({"iss": ["http://127.0.0.1:1"]}, "'iss'"),
        ({"iss": None}, "iss"),
        ({"sub": None}, "'sub'"),
        ({"sub": ""}, "'sub'"),
        ({"sub": 7}, "'sub'"),
        ({"sub": "a" * 256}, "'sub'"),
        ({"sub": "a\nb"}, "'sub'"),
        ({"sub": "\ud800"}, "'sub'"),
    ],
    ids=repr,
)
async def test_a_claim_that_is_wrong(setting, changed, message):
    with pytest.raises(Unauthorized, match=message) as caught:
        await setting.who(**changed)
    assert caught.value.code == "invalid_api_key"
    assert caught.value.challenge == 'Bearer error="invalid_token"'


@pytest.mark.parametrize(
    "changed",
    [
        {"exp": 999_971},
        {"exp": 1e300},
        {"exp": 10**400},
        {"nbf": 1_000_030},
        {"iat": 1_000_030},
        {"iat": None},
        {"aud": ["somebody-else", "gateway"]},
        {"sub": "auth0|Ж 1"},
    ],
    ids=repr,
)
async def test_a_claim_that_is_right_in_an_unusual_way(setting, changed):
    assert await setting.who(**changed)


@pytest.mark.parametrize("claims", [b"NaN", b"[]", b"", b'{"exp":NaN}', b'{"exp":1e999}', b"[" * 9000, b"\xff"])
async def test_claims_that_are_none(setting, claims):
    with pytest.raises(Unauthorized):
        await setting.who(setting.issuer.token(claims))


@pytest.mark.parametrize(
    "header",
    [
        {"alg": "none"},
        {"alg": "HS256"},
        {"alg": "RS512"},
        {"alg": ["ES256"]},
        {"alg": None},
        {"crit": ["exp"]},
        {"crit": []},
        {"crit": ["b64"], "b64": False},
        {"b64": False},
        {"typ": "logout+jwt"},
        {"typ": "dpop+jwt"},
        {"typ": 1},
        {"kid": ["first"]},
        {"kid": {"$ne": ""}},
        {"kid": "../../first"},
        {"kid": "first' OR '1'='1"},
        {"alg": "RS256"},
    ],
    ids=repr,
)
async def test_a_header_that_is_refused(setting, header):
    setting.issuer.add_key("second")
    with pytest.raises(Unauthorized):
        await setting.who(header=header)


@pytest.mark.parametrize(
    "header",
    [
        {"typ": None},
        {"typ": "JWT"},
        {"typ": "application/AT+JWT"},
        {"x-own": 1},
        {"jku": "http://127.0.0.1:2/keys"},
        {"kid": None},
    ],
    ids=repr,
)
async def test_a_header_that_is_taken(setting, header):
    assert await setting.who(header=header)
    assert not any("keys" in path for path in setting.issuer.asked)


async def test_a_key_in_the_token_itself_counts_for_nothing(setting, make_setting):
    stranger = make_setting().issuer
    published = stranger.published["first"]
    with pytest.raises(Unauthorized, match="No key"):
        await setting.who(stranger.token(now=setting.clock.now(), header={"jwk": published}))


async def test_the_public_key_is_no_secret_to_sign_with(setting):
    setting.issuer.add_key("k", "RS256")
    secret = OctKey.import_key(json.dumps(setting.issuer.published["k"]).encode())
    head, body = encode_part({"alg": "HS256", "kid": "k"}), encode_part(setting.issuer.claims(now=1_000_000))
    signature = hmac.digest(secret.raw_value, f"{head}.{body}".encode(), "sha256")
    with pytest.raises(Unauthorized, match="not accepted"):
        await setting.who(f"{head}.{body}.{encode_part(signature)}")


async def test_a_token_without_a_key_id_is_not_tried_with_several_keys(setting):
    setting.issuer.add_key("second")
    with pytest.raises(Unauthorized, match="No key"):
        await setting.who(header={"kid": None})


async def test_a_token_beyond_the_bound_is_not_read(make_setting):
    setting = make_setting(max_token_bytes=200)
    with pytest.raises(Unauthorized, match="200 bytes"):
        await setting.who()
    assert setting.issuer.asked == []


async def test_a_large_token_within_the_bound_is_taken(setting):
    assert await setting.who(groups=["g" * 100] * 90, header={"x5c": ["A" * 2000]})


@pytest.mark.parametrize(
    ("claims", "passes"),
    [
        ({"scope": "chat admin"}, True),
        ({"scp": ["admin", "chat"]}, True),
        ({"scp": "chat admin"}, True),
        ({"scope": "chat"}, False),
        ({"scope": "chatadmin"}, False),
        ({"scope": {"chat": 1, "admin": 1}}, False),
        ({}, False),
    ],
)
async def test_scopes_that_are_required(make_setting, claims, passes):
    setting = make_setting(required_scopes=("chat", "admin"))
    if passes:
        assert await setting.who(**claims)
        return
    with pytest.raises(Forbidden, match="admin") as caught:
        await setting.who(**claims)
    assert caught.value.code == "insufficient_scope"
    assert caught.value.hints == {"www-authenticate": 'Bearer error="insufficient_scope"'}


async def test_another_claim_may_name_the_caller(make_setting):
    setting = make_setting(principal_claim="client_id")
    assert await setting.who(client_id="team-a") == f"{setting.issuer.url}#team-a"
    with pytest.raises(Unauthorized, match="client_id"):
        await setting.who()


# ---------------------------------------------------------------- whatever is sent


class Checker:
    """Checks tokens without any waiting."""

    def __init__(self):
        setting = Setting()
        self.issuer = setting.issuer
        self.good = self.sign(self.issuer.claims(now=setting.clock.now()))
        self._keys = SigningKeys(self.issuer.document("/jwks"))
        self._reader = TokenReader(setting.oidc, setting.clock)

    def sign(self, claims):
        return self.issuer.token(json.dumps(claims).encode()).encode()

    def check(self, token):
        return self._reader.identify(self._reader.open(token), self._keys)


@pytest.fixture(scope="module")
def checker():
    return Checker()


@given(place=st.integers(0, 10_000), change=st.integers(1, 255))
def test_no_changed_byte_passes(checker, place, change):
    mangled = bytearray(checker.good)
    mangled[place % len(mangled)] ^= change
    with pytest.raises(Unauthorized):
        checker.check(bytes(mangled))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize("header", ["alg", "alg b64", ["alg", "b64"], ["alg", "crit"], 1, None, {}])
def test_a_header_that_is_no_object_is_refused(checker, header):
    with pytest.raises(Unauthorized):
        checker.check(f"{encode_part(header)}.{encode_part({})}.{encode_part(b'x' * 64)}".encode())


MEMBERS = st.sampled_from(["alg", "kid", "typ", "crit", "b64", "jwk", "x5c"])


@given(
    header=st.dictionaries(MEMBERS, JSON) | st.lists(MEMBERS) | JSON,
    good=st.booleans(),
    payload=st.binary(max_size=40),
    signature=st.binary(max_size=70),
)
def test_no_made_up_token_passes_or_breaks_anything(checker, header, good, payload, signature):
    if good and isinstance(header, dict):
        header = {**header, "alg": "ES256", "kid": "first"}
    with pytest.raises(Unauthorized):
        checker.check(f"{encode_part(header)}.{encode_part(payload)}.{encode_part(signature)}".encode())


@given(raw=st.binary(max_size=60) | st.text(alphabet="ab.-_=", max_size=30).map(str.encode))
def test_rubbish_is_refused(checker, raw):
    with pytest.raises(Unauthorized):
        checker.check(raw)


@given(
    changed=st.dictionaries(st.sampled_from(["iss", "sub", "aud", "exp", "nbf", "iat", "jti"]), JSON, max_size=2),
)
def test_signed_claims_of_any_kind_are_judged_and_no_more(checker, changed):
    claims = {**checker.issuer.claims(now=1_000_000), **changed}
    try:
        identity = checker.check(checker.sign(claims))
    except Unauthorized:
        assert changed
    else:
        assert identity.principal == f"{checker.issuer.url}#{claims['sub']}"


def test_base64_that_means_the_same_is_no_second_token(checker):
    assert checker.check(checker.good)
    head, body, signature = checker.good.split(b".")
    padded = base64.urlsafe_b64encode(base64.urlsafe_b64decode(signature + b"=="))
    with pytest.raises(Unauthorized):
        checker.check(b".".join([head, body, padded]))
