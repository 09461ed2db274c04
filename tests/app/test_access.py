"""Which authenticator a configuration gets, and when it gets none."""

import stat

import pytest

from gateway.app.access import build_authenticator, build_key_book, build_proxies
from gateway.app.errors import StartError
from gateway.app.parts import SystemClock
from gateway.config.schema import AuthConfig, GatewayConfig, StorageConfig
from gateway.config.secret import SecretUrl
from gateway.storage.key_file import KeyFile
from gateway.storage.key_table import KeyTable
from gateway.telemetry.metrics import Metrics
from gateway.transport.auth import Unauthenticated
from gateway.transport.keys import KeyRing


def build(**auth):
    storage = StorageConfig(url=SecretUrl("postgresql://gateway:s3cret@127.0.0.1:1/gateway"))
    return build_authenticator(GatewayConfig(auth=AuthConfig(**auth), storage=storage), SystemClock(), Metrics())


def test_without_a_mode_nobody_is_asked():
    assert isinstance(build(), Unauthenticated)


def test_keys_in_a_file(tmp_path):
    file = tmp_path / "keys.toml"
    file.write_text("")
    assert isinstance(build(mode="api_keys", keys_file=str(file)), KeyRing)


def test_a_file_that_cannot_be_used_stops_the_start(tmp_path):
    file = tmp_path / "keys.toml"
    with pytest.raises(StartError, match="gateway keys create"):
        build(mode="api_keys", keys_file=str(file))
    file.write_text("")
    file.chmod(file.stat().st_mode | stat.S_IWOTH)
    with pytest.raises(StartError, match="chmod go-w"):
        build(mode="api_keys", keys_file=str(file))


async def test_a_database_that_is_away_does_not():
    ring = build(mode="api_keys", keys_in="database")
    assert isinstance(ring, KeyRing)
    await ring.close()


def test_where_the_keys_are():
    books = [build_key_book(GatewayConfig(auth=AuthConfig(keys_in=place))) for place in ("file", "database")]
    assert [type(book) for book in books] == [KeyFile, KeyTable]
    books[1].close()


def test_proxies_are_believed_where_they_are_named():
    assert build_proxies(AuthConfig()) is None
    named = {"trusted_principal_header": "x-user", "trusted_proxies": ("127.0.0.1/32",)}
    assert build_proxies(AuthConfig(**named)) is not None
