"""Which hosts and addresses a request may lead the gateway to."""

from ipaddress import ip_address

import pytest

from gateway.tools.mcp.egress import Egress, EgressRefused, is_public

PRIVATE = [
    "127.0.0.1", "127.9.9.9", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1",
    "192.0.2.1", "198.18.0.1", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255", "::1", "::", "fe80::1",
    "fe80::1%eth0", "fc00::1", "fd12::1", "ff02::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1",
    "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::a00:1", "2002:7f00:1::", "2002:a00:1::1",
    "2001:0:53aa:64c::1", "2001:db8::1",
]  # fmt: skip
PUBLIC = ["8.8.8.8", "1.1.1.1", "2606:4700:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808", "2002:808:808::1"]


@pytest.mark.parametrize("address", PRIVATE)
def test_what_only_this_network_reaches_is_private(address):
    assert not is_public(ip_address(address))
    with pytest.raises(EgressRefused, match="private or local"):
        Egress().check_host(address)
    with pytest.raises(EgressRefused, match="private or local"):
        Egress().choose([address])
    Egress(private=True).check_host(address)
    assert Egress(private=True).choose([address]) == [address]


@pytest.mark.parametrize("address", PUBLIC)
def test_what_everybody_reaches_is_public(address):
    assert is_public(ip_address(address))
    Egress().check_host(address)


def test_of_several_addresses_only_public_ones_are_called():
    assert Egress().choose(["10.0.0.1", "8.8.8.8", "::1", "8.8.8.8"]) == ["8.8.8.8"]
    assert Egress().choose([]) == []


def test_names_are_compared_in_one_spelling():
    egress = Egress(hosts=frozenset({"docs.example.com", "8.8.8.8"}))
    for host in ("docs.example.com", "DOCS.example.COM", "docs.example.com.", "8.8.8.8"):
        egress.check_host(host)
    for host in ("example.com", "x.docs.example.com", "docs.example.com.evil.org", "8.8.4.4"):
        with pytest.raises(EgressRefused, match="allow_hosts"):
            egress.check_host(host)
