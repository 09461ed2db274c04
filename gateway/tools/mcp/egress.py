"""Which hosts a request may name a server at; `tools.addresses` decides on the addresses they turn out to have."""

from ipaddress import ip_address
from typing import Final

from msgspec import Struct

from gateway.tools.address_space import is_public


class EgressRefused(Exception):
    """A host that may not be called; the message follows the name of the parameter."""


class Egress(Struct, frozen=True, kw_only=True):
    """What may be called.

    Attributes:
        hosts: the only hosts, names in lower case and addresses in their one spelling; none means every host.
        private: whether addresses that only this network reaches may be called.
    """

    hosts: frozenset[str] = frozenset()
    private: bool = False

    def check(self, host: str) -> None:
        """Check what a URL names, before anybody is asked where it is.

        Args:
            host: a name, or an address without brackets.

        Raises:
            EgressRefused: it is not among the hosts, or an address that may not be called.
        """
        address = _read_address(host)
        if self.hosts and (address or host.lower().removesuffix(".")) not in self.hosts:
            raise EgressRefused(
                "names a host that this gateway does not call; its operator lists them in mcp.allow_hosts"
            )
        if address is not None and not self.private and not is_public(address):
            raise EgressRefused(
                "leads to a private or local address, which this gateway does not call; its operator can set "
                "mcp.allow_private_addresses, or configure the server"
            )


UNBOUNDED: Final = Egress(private=True)
"""What a server of the configuration may be: its operator said where it is."""


def _read_address(host: str) -> str | None:
    try:
        return str(ip_address(host))
    except ValueError:
        return None
