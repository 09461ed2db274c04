"""Where a server that a request names may be: which hosts, and which of their addresses."""

from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

from msgspec import Struct

Address = IPv4Address | IPv6Address

# Prefixes whose addresses stand for an IPv4 address in their last 32 bits, for translators on the way.
_TRANSLATED: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"), IPv6Network("::/96"))


class EgressRefused(Exception):
    """A host or an address that may not be called; the message is for the caller."""


class Egress(Struct, frozen=True, kw_only=True):
    """What may be called.

    Attributes:
        hosts: the only hosts, names in lower case and addresses in their one spelling; none means every host.
        private: whether addresses that only this network reaches may be called.
    """

    hosts: frozenset[str] = frozenset()
    private: bool = False

    def check_host(self, host: str) -> None:
        """Check what a URL names, before anybody is asked where it is.

        Args:
            host: a name, or an address without brackets.

        Raises:
            EgressRefused: it is not among the hosts, or an address that may not be called.
        """
        literal = _read_address(host)
        name = str(literal) if literal else host.lower().removesuffix(".")
        if self.hosts and name not in self.hosts:
            raise EgressRefused("names a host that this gateway does not call; its operator lists them in allow_hosts")
        if literal is not None and not self.private and not is_public(literal):
            raise EgressRefused("leads to a private or local address, which this gateway does not call")

    def choose(self, addresses: Iterable[str]) -> list[str]:
        """Return those of a host's addresses that may be called, in order.

        Raises:
            EgressRefused: there is none.
        """
        found = list(dict.fromkeys(addresses))
        allowed = [one for one in found if self.private or is_public(ip_address(one))]
        if found and not allowed:
            raise EgressRefused("its address is private or local, and this gateway does not call those")
        return allowed


def is_public(address: Address) -> bool:
    """Whether an address is one of the public Internet, and so is the one it stands for, if it does."""
    if isinstance(address, IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and any(address in network for network in _TRANSLATED):
            inner = IPv4Address(int(address) & 0xFFFFFFFF)
        if address.teredo is not None or (inner is not None and not is_public(inner)):
            return False
        if address.ipv4_mapped is not None:
            return True
    return address.is_global and not address.is_multicast


def _read_address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
