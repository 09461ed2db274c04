"""What is remembered of tokens, and for how long."""

import pytest

from gateway.ports import Identity
from gateway.protocol.errors import GatewayError, Unauthorized

TOKENS = "gateway_oidc_tokens_total"


@pytest.mark.parametrize(
    "credential",
    [None, b"", b"Bearer", b"Bearer ", b"Basic YTpi", b"Bearer a b", b"bearer x", b"\xff\xfe", b"Bearer a.b.c.d.e"],
)
async def test_what_is_no_bearer_token_is_refused_without_asking_anybody(setting, credential):
    assert setting.authenticator.recall(credential) is None
    with pytest.raises(Unauthorized):
        await setting.authenticator.authenticate(credential)
    assert setting.issuer.asked == []
    assert setting.counted(TOKENS, outcome="refused") == 1


@pytest.mark.parametrize("scheme", [b"bearer ", b"BEARER  "])
async def test_the_scheme_is_spelled_as_one_likes(setting, scheme):
    assert await setting.authenticator.authenticate(scheme + setting.bearer().split()[1])


async def test_a_token_is_checked_once_and_remembered_until_it_expires(setting):
    credential = setting.bearer(exp=1_000_200)
    assert setting.authenticator.recall(credential) is None
    identity = await setting.authenticator.authenticate(credential)
    setting.clock.seconds += 229
    assert setting.authenticator.recall(credential) is identity
    assert setting.authenticator.holds(identity)
    setting.clock.seconds += 1
    assert not setting.authenticator.holds(identity)
    assert setting.authenticator.recall(credential) is None
    assert setting.counted("gateway_oidc_remembered_tokens") == 0
    with pytest.raises(Unauthorized, match="expired"):
        await setting.authenticator.authenticate(credential)
    assert setting.counted(TOKENS, outcome="accepted") == 1


async def test_nothing_is_recalled_while_there_is_something_to_ask(setting):
    credential = setting.bearer(exp=2_000_000)
    await setting.authenticator.authenticate(credential)
    setting.clock.seconds += 300
    assert setting.authenticator.recall(credential) is None
    await setting.authenticator.authenticate(credential)
    assert setting.authenticator.recall(credential)


async def test_during_an_outage_tokens_are_recalled_between_two_attempts(setting):
    credential = setting.bearer(exp=2_000_000)
    await setting.authenticator.authenticate(credential)
    setting.issuer.broken = True
    setting.clock.seconds += 300
    await setting.authenticator.authenticate(credential)
    assert setting.authenticator.recall(credential)
    setting.clock.seconds += 3600
    assert setting.authenticator.recall(credential) is None


async def test_nothing_remains_of_a_key_that_was_withdrawn(setting):
    setting.issuer.add_key("second")
    old, new = setting.bearer(exp=2_000_000), setting.bearer(kid="second", exp=2_000_000)
    await setting.authenticator.authenticate(old)
    await setting.authenticator.authenticate(new)
    del setting.issuer.published["first"]
    setting.clock.seconds += 300
    await setting.authenticator.authenticate(new)
    assert setting.authenticator.recall(new)
    assert setting.authenticator.recall(old) is None
    with pytest.raises(Unauthorized):
        await setting.authenticator.authenticate(old)


async def test_a_background_look_that_finds_other_keys_ends_what_is_remembered(setting):
    credential = setting.bearer()
    await setting.authenticator.authenticate(credential)
    del setting.issuer.published["first"]
    await setting.keeper.ask()
    assert setting.authenticator.recall(credential) is None


async def test_the_tokens_used_longest_ago_make_room(make_setting):
    setting = make_setting(remembered_tokens=2)
    first, second, third = (setting.bearer(sub=name) for name in "abc")
    await setting.authenticator.authenticate(first)
    await setting.authenticator.authenticate(second)
    assert setting.authenticator.recall(first)
    await setting.authenticator.authenticate(third)
    remembered = [setting.authenticator.recall(credential) is not None for credential in (first, second, third)]
    assert remembered == [True, False, True]
    setting.metrics.refresh()
    assert setting.counted("gateway_oidc_remembered_tokens") == 2


async def test_nothing_is_remembered_where_there_is_no_room(make_setting):
    setting = make_setting(remembered_tokens=0)
    credential = setting.bearer()
    await setting.authenticator.authenticate(credential)
    assert setting.authenticator.recall(credential) is None


async def test_no_token_is_held_in_memory(setting):
    credential = setting.bearer()
    await setting.authenticator.authenticate(credential)
    held = setting.authenticator._remembered
    assert len(held) == 1
    assert not any(credential[20:40] in key for key in held)


async def test_an_identity_without_an_end_holds(setting):
    assert setting.authenticator.holds(Identity(principal="somebody"))


async def test_no_error_repeats_the_token(setting):
    for token in (setting.issuer.token(now=0), setting.issuer.token(now=1_000_000)[:-4] + "AAAA", "secret.secret.x"):
        with pytest.raises(GatewayError) as caught:
            await setting.who(token)
        assert not any(part in caught.value.message for part in token.split("."))
