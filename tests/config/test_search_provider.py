"""What a search provider needs."""

import pytest


@pytest.mark.parametrize(
    ("text", "path", "message"),
    [
        ("web_search.provider = 'brave'", "web_search.provider", "brave needs a key"),
        ("web_search.provider = 'tavily'", "web_search.provider", "tavily needs a key"),
        ("web_search.provider = 'searxng'", "web_search.provider", "to that of your instance"),
        ("web_search = { provider = 'brave', api_key = 'ä' }", "web_search.api_key", "keys are ASCII"),
        (
            "web_search = { provider = 'searxng', url = 'http://localhost:8080' }",
            "web_search.url",
            "allow_private_addresses = true",
        ),
        (
            "web_search = { provider = 'brave', api_key = 'k', url = 'http://search.example' }",
            "web_search.url",
            "could read api_key",
        ),
        (
            "web_search = { provider = 'brave', api_key = 'k', max_output_bytes = 100 }",
            "web_search.max_output_bytes",
            "at least 4KiB",
        ),
        ("web_search = { provider = 'brave', api_key = 'k', ca_file = '/no' }", "web_search.ca_file", "No such file"),
        ("web_search.provider = 'altavista'", "web_search.provider", "off"),
        ("web_search.url = 'http://u:p@h'", "web_search.url", "credentials"),
    ],
)
def test_a_provider_that_cannot_be_asked_is_a_problem(problems, text, path, message):
    (finding,) = problems(text)
    assert finding.path == path
    assert message in finding.message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "web_search = { provider = 'searxng', url = 'http://localhost:8080', allow_private_addresses = true }",
        "web_search = { provider = 'searxng', url = 'https://search.example', api_key = 'k' }",
        "web_search = { provider = 'tavily', api_key = 'k' }",
    ],
)
def test_one_that_can_is_none(load, text):
    assert load(text).warnings == ()


@pytest.mark.parametrize("key", ["url = 'http://localhost:8080'", "api_key = 'k'"])
def test_what_belongs_to_a_provider_is_nothing_without_one(load, key):
    (warning,) = load(f"web_search.{key}").warnings
    assert "web_search.provider is off" in warning.message


@pytest.mark.checklist(302)
def test_the_key_may_lie_in_a_file(load, tmp_path):
    (tmp_path / "key").write_text("s3cret\n")
    (tmp_path / "key").chmod(0o600)
    config = load(f"web_search = {{ provider = 'brave', api_key_file = '{tmp_path / 'key'}' }}").config.web_search
    assert config.api_key is not None
    assert (config.api_key.reveal(), "s3cret" in repr(config)) == ("s3cret", False)
