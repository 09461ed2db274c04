"""When an issuer is asked for its keys, and what counts while it does not answer."""

import asyncio
import logging

import pytest

from gateway.protocol.errors import Unauthorized, Unavailable

OUTCOMES = "gateway_oidc_key_fetches_total"


async def test_the_first_callers_wait_for_one_answer(setting):
    setting.gate.clear()
    calls = [asyncio.create_task(setting.who(sub=name)) for name in "abc"]
    await asyncio.sleep(0)
    calls[0].cancel()
    setting.gate.set()
    assert [name[-1] for name in await asyncio.gather(*calls[1:])] == ["b", "c"]
    assert setting.fetches == 1


async def test_the_start_asks_and_does_not_wait(setting):
    setting.gate.clear()
    await setting.authenticator.start()
    setting.gate.set()
    await setting.who()
    assert setting.fetches == 1


async def test_an_issuer_that_is_down_at_the_start(setting, caplog):
    caplog.set_level(logging.INFO, "gateway.oidc")
    setting.issuer.broken = True
    for _ in range(3):
        with pytest.raises(Unavailable, match="issuer") as caught:
            await setting.who()
        assert caught.value.hints["retry-after"] == "15"
    assert setting.counted(OUTCOMES, outcome="failed") == 1
    setting.issuer.broken = False
    setting.clock.seconds += 15
    assert await setting.who()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


async def test_keys_are_asked_for_again_when_they_are_old(setting):
    await setting.who()
    setting.clock.seconds += 299
    await setting.who()
    assert setting.fetches == 1
    setting.clock.seconds += 1
    await setting.who()
    assert setting.fetches == 2


async def test_a_withdrawn_key_counts_no_longer_than_the_cache_says(setting):
    setting.issuer.add_key("second")
    await setting.who()
    del setting.issuer.published["first"]
    setting.clock.seconds += 299
    assert await setting.who()
    setting.clock.seconds += 1
    with pytest.raises(Unauthorized, match="No key"):
        await setting.who()
    assert await setting.who(kid="second")


async def test_an_unknown_key_is_looked_for_once_in_a_while(setting):
    await setting.who()
    setting.clock.seconds += 15
    setting.issuer.add_key("second")
    assert await setting.who(kid="second")
    assert setting.fetches == 2
    for kid in ("a", "b", "c"):
        with pytest.raises(Unauthorized, match="No key"):
            await setting.who(header={"kid": kid})
    assert setting.fetches == 2
    setting.clock.seconds += 15
    with pytest.raises(Unauthorized, match="No key"):
        await setting.who(header={"kid": "a"})
    assert setting.fetches == 3


async def test_all_who_bring_a_new_key_wait_for_the_same_look(setting):
    await setting.who()
    setting.clock.seconds += 15
    setting.issuer.add_key("second")
    setting.gate.clear()
    calls = [asyncio.create_task(setting.who(kid="second")) for _ in range(3)]
    while len(setting.issuer.asked) < 3:
        await asyncio.sleep(0)
    setting.gate.set()
    assert len(await asyncio.gather(*calls)) == 3
    assert setting.fetches == 2


async def test_nobody_is_refused_for_a_key_that_could_not_be_looked_for(setting):
    await setting.who()
    setting.clock.seconds += 15
    setting.issuer.broken = True
    with pytest.raises(Unavailable):
        await setting.who(header={"kid": "new"})
    assert await setting.who()


async def test_known_keys_go_on_for_a_while_and_nobody_waits_for_an_issuer_that_is_down(setting, caplog):
    await setting.who()
    setting.issuer.broken = True
    setting.clock.seconds += 300
    assert await setting.who()
    setting.gate.clear()
    setting.clock.seconds += 15
    assert await setting.who()
    setting.gate.set()
    setting.clock.seconds += 3584
    assert await setting.who()
    setting.clock.seconds += 1
    with pytest.raises(Unavailable):
        await setting.who()
    assert [record.levelname for record in caplog.records if record.name == "gateway.oidc"] == ["WARNING"]


async def test_no_staleness_at_all_can_be_asked_for(make_setting):
    setting = make_setting(jwks_max_stale_seconds=0.0)
    await setting.who()
    setting.issuer.broken = True
    setting.clock.seconds += 300
    with pytest.raises(Unavailable):
        await setting.who()


async def test_a_reload_asks_again(setting):
    await setting.who()
    setting.issuer.add_key("second")
    setting.authenticator.refresh()
    assert await setting.who(kid="second")
    assert setting.fetches == 2


@pytest.mark.parametrize(
    ("discovery", "reason"),
    [
        ({"issuer": "http://127.0.0.1:1/"}, "another issuer"),
        ({"issuer": None}, "another issuer"),
        ({"jwks_uri": None}, "jwks_uri"),
        ({"jwks_uri": "http://keys.example/jwks"}, "jwks_uri"),
        ({"jwks_uri": "https://a\r\nHost: b/jwks"}, "jwks_uri"),
        ({"jwks_uri": "file:///etc/passwd"}, "jwks_uri"),
        ({"jwks_uri": "https://user:secret@127.0.0.1/jwks"}, "jwks_uri"),
        ({"jwks_uri": "http://127.0.0.1:1/nothing"}, "no answer"),
        ({"jwks_uri": "http://127.0.0.1:1/.well-known/openid-configuration"}, "'keys'"),
    ],
)
async def test_a_discovery_document_that_is_not_followed(setting, caplog, discovery, reason):
    published = setting.issuer.document
    setting.issuer.document = lambda path: {**published(path), **discovery} if "well-known" in path else published(path)
    if "nothing" in str(discovery):
        setting.issuer.document = lambda path: {**published(path), **discovery} if "well-known" in path else None
    with pytest.raises(Unavailable):
        await setting.who()
    assert reason in caplog.text
    assert "secret" not in caplog.text


async def test_a_fault_while_asking_is_logged_and_not_the_last_word(setting, caplog):
    async def stumble(url):
        raise RuntimeError("stumbled")

    setting.keeper._get = stumble
    with pytest.raises(Unavailable):
        await setting.who()
    assert "stumbled" in caplog.text
    setting.keeper._get = setting.get
    setting.clock.seconds += 15
    assert await setting.who()


async def test_the_slash_at_an_issuers_end_is_part_of_its_name_but_not_of_the_path(make_setting):
    setting = make_setting(issuer="http://127.0.0.1:1/realm/")
    setting.issuer.url = "http://127.0.0.1:1/realm/"
    paths = {"/realm/.well-known/openid-configuration": {"issuer": setting.issuer.url, "jwks_uri": "http://[::1]/k"}}
    paths["/k"] = {"keys": list(setting.issuer.published.values())}
    setting.issuer.document = paths.get
    assert (await setting.who()).startswith("http://127.0.0.1:1/realm/#")


async def test_closing_ends_a_question_and_whoever_waits_is_told(setting):
    setting.gate.clear()
    call = asyncio.create_task(setting.who())
    while not setting.issuer.asked:
        await asyncio.sleep(0)
    await setting.authenticator.close()
    with pytest.raises(Unavailable):
        await call
    await setting.authenticator.close()
