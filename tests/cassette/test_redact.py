import json

import pytest

from gateway.cassette.redact import Redactor

JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl"
KEY = 'odd"key/ä'


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"input":"my key is sk-proj-abcdefgh1234"}', '{"input":"my key is ***"}'),
        (f'{{"input":"{JWT} and {JWT}"}}', '{"input":"*** and ***"}'),
        ('{"headers":{"X":"Bearer abcdefghijkl=="}}', '{"headers":{"X":"Bearer ***"}}'),
        ('{"tools":[{"authorization":"se\\"cret"}]}', '{"tools":[{"authorization":"***"}]}'),
        ('{"delta":"risk-averse, a bearer of news"}', '{"delta":"risk-averse, a bearer of news"}'),
    ],
)
def test_what_looks_like_a_key_is_masked(text, shown):
    assert Redactor().redact_text(text) == (shown, shown.count("***"))
    assert Redactor().redact_text(shown) == (shown, 0)


@pytest.mark.parametrize(
    "text",
    [
        '{"call_id":"sk-abcdefgh12345678"}',
        '{"id": "sk-abcdefgh12345678", "response_id":"sk-abcdefgh12345678"}',
        f'{{"encrypted_content":"{JWT}","obfuscation":"sk-abcdefgh12345678"}}',
        '{"error":{"message":"Incorrect API key: sk-abcdefgh12345678"}}',
        '{"encrypted_content":"gAAAAsk-abcdefgh12345678"}',
    ],
)
def test_what_makes_the_protocol_is_never_touched(text):
    assert Redactor().redact_text(text) == (text, 0)


@pytest.mark.agents(136)
def test_the_live_key_stands_nowhere_however_it_is_written():
    redactor = Redactor([KEY])
    inner = json.dumps({"arguments": json.dumps({"key": KEY}, ensure_ascii=False)}, ensure_ascii=False)
    for text in (KEY, json.dumps({"id": KEY}, ensure_ascii=False), inner):
        shown, count = redactor.redact_text(text)
        assert count == 1
        assert "key/" not in shown
    assert redactor.redact_bytes(b"\xff" + KEY.encode()) == (b"\xff***", 1)
    assert redactor.redact_headers({"x-echo": KEY}) == ({"x-echo": "***"}, 1)


def test_headers_of_secrets_are_masked_and_the_scheme_stays():
    headers = {"Authorization": "Bearer abc", "Set-Cookie": "a=b", "X-Api-Key": "k", "OpenAI-Beta": "x=v1"}
    shown, count = Redactor().redact_headers({**headers, "x-request-id": "sk-abcdefgh12345678"})
    assert shown == {
        "Authorization": "Bearer ***",
        "Set-Cookie": "***",
        "X-Api-Key": "***",
        "OpenAI-Beta": "x=v1",
        "x-request-id": "sk-abcdefgh12345678",
    }
    assert count == 3


def test_urls_show_neither_users_nor_keys():
    shown, count = Redactor().redact_url("wss://me:pw@host:1/v1/responses?model=m&api_key=1&token=2&sig=3&monkey=4")
    assert shown == "wss://host:1/v1/responses?model=m&api_key=***&token=***&sig=***&monkey=4"
    assert count == 4
