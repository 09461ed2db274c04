"""Which hosts a request may lead the gateway to."""

import pytest

from gateway.tools.mcp.egress import UNBOUNDED, Egress, EgressRefused


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "169.254.169.254", "::1", "fe80::1", "::ffff:10.0.0.1"])
def test_an_address_of_this_network_is_refused_unasked(host):
    with pytest.raises(EgressRefused, match="private or local"):
        Egress().check(host)
    UNBOUNDED.check(host)


@pytest.mark.parametrize("host", ["8.8.8.8", "2606:4700:4700::1111", "docs.example.com", "localhost"])
def test_public_addresses_pass_and_names_are_looked_up_later(host):
    Egress().check(host)


def test_names_are_compared_in_one_spelling():
    egress = Egress(hosts=frozenset({"docs.example.com", "8.8.8.8"}))
    for host in ("docs.example.com", "DOCS.example.COM", "docs.example.com.", "8.8.8.8"):
        egress.check(host)
    for host in ("example.com", "x.docs.example.com", "docs.example.com.evil.org", "8.8.4.4"):
        with pytest.raises(EgressRefused, match="its operator lists them"):
            egress.check(host)
