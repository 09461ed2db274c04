"""What a header says of the caller, and who may say it."""

import pytest

from gateway.ports import Identity
from gateway.protocol.errors import Unauthorized
from gateway.transport.proxies import TrustedProxies

NETWORKS = ("10.1.0.0/16", "127.0.0.1/32", "fd00::/8")


def ask(peer, *values, required=False, networks=NETWORKS):
    headers = [(b"host", b"a"), *((b"x-user", value) for value in values)]
    scope = {"client": None if peer is None else (peer, 1234), "headers": headers}
    return TrustedProxies("x-user", networks, required=required).identify(scope)


@pytest.mark.parametrize("peer", ["10.1.2.3", "127.0.0.1", "fd00::1", "::ffff:10.1.2.3"])
def test_a_proxy_is_believed(peer):
    assert ask(peer, b"ada@example.com") == Identity(principal="ada@example.com")


@pytest.mark.parametrize("peer", ["10.2.0.1", "127.0.0.2", "::1", "::ffff:10.2.0.1", "fe80::1%eth0", "", "proxy", None])
@pytest.mark.parametrize("required", [False, True])
def test_nobody_else_is(peer, required):
    assert ask(peer, b"ada", required=required) is None
    assert ask(peer, required=required) is None


def test_white_space_around_a_name_is_none_of_it():
    assert ask("10.1.2.3", b" ada\t ") == Identity(principal="ada")


def test_a_proxy_that_names_nobody():
    assert ask("10.1.2.3") is None
    with pytest.raises(Unauthorized, match="it names 0"):
        ask("10.1.2.3", required=True)


@pytest.mark.parametrize("required", [False, True])
def test_a_name_that_its_client_may_have_added(required):
    with pytest.raises(Unauthorized, match="it names 2"):
        ask("10.1.2.3", b"eve", b"ada", required=required)


@pytest.mark.parametrize("name", [b"", b"  ", b"a b", b"\xe4", b"a\x00", b"x" * 256])
def test_a_name_that_cannot_be_one(name):
    with pytest.raises(Unauthorized, match="x-user names no caller: a principal is"):
        ask("10.1.2.3", name)
