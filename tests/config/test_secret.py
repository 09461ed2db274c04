"""A secret shows itself to `reveal` alone."""

import pickle

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config import Secret, SecretUrl, StorageConfig, UpstreamConfig
from gateway.config.secret import redact_url

PASSWORDS = st.text(alphabet=st.characters(codec="utf-8", exclude_characters="*"), min_size=6)


@pytest.mark.parametrize("render", [str, repr, "{}".format, "%s".__mod__, lambda secret: repr([secret])])
def test_no_rendering_shows_it(render):
    assert "hunter2" not in render(Secret("hunter2"))
    assert "***" in render(Secret("hunter2"))


def test_the_config_structs_do_not_show_it():
    assert "hunter2" not in repr(UpstreamConfig(api_key=Secret("hunter2")))
    assert "hunter2" not in repr(StorageConfig(url=SecretUrl("postgresql://u:hunter2@h/d")))


def test_it_is_neither_encoded_nor_pickled():
    with pytest.raises(TypeError):
        msgspec.json.encode(Secret("hunter2"))
    with pytest.raises(TypeError):
        pickle.dumps(Secret("hunter2"))


def test_equality_is_by_type_and_value():
    assert Secret("a") == Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert Secret("a") != SecretUrl("a")
    assert len({Secret("a"), Secret("a")}) == 1
    assert Secret("a").reveal() == "a"


@given(PASSWORDS)
def test_a_url_hides_its_password_whatever_is_in_it(password):
    assert redact_url(f"postgresql://user:{password}@host/db") == "postgresql://user:***@host/db"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///responses.db", "sqlite:///responses.db"),
        ("postgresql://user@host:5432/db", "postgresql://user@host:5432/db"),
        ("postgresql://:secret@host/db", "postgresql://:***@host/db"),
        ("postgresql://host/db?user=a&password=secret&x=1", "postgresql://host/db?user=a&password=***&x=1"),
        ("postgresql://host/db?sslpassword=secret", "postgresql://host/db?sslpassword=***"),
        ("https://user:secret@host/mcp?key=secret", "https://user:***@host/mcp?***"),
    ],
)
def test_the_rest_of_a_url_is_shown(url, shown):
    assert str(SecretUrl(url)) == shown
    assert SecretUrl(url).reveal() == url


@pytest.mark.parametrize("value", ["", "two\nlines", "tab\t", 5, None, True])
def test_what_cannot_be_a_secret_is_refused(value):
    with pytest.raises(ValueError, match=r"empty|control character|string"):
        Secret.parse(value)
