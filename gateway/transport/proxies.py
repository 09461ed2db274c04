"""Callers whom a proxy in front has recognized: it names them in a header, and is believed by its address."""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Final

from litestar.types import Scope

from gateway.ports import Identity
from gateway.protocol.credentials import check_principal
from gateway.protocol.errors import Unauthorized

_PEERS_REMEMBERED: Final = 1024


class TrustedProxies:
    """Tells whom a proxy calls for.

    Args:
        header: the header by which it says so, lower-cased.
        networks: addresses and networks of the proxies; of anybody else the header is not looked at.
        required: whether a proxy has to name the caller; else those it does not name need a credential.
    """

    def __init__(self, header: str, networks: Iterable[str], *, required: bool) -> None:
        self._header = header
        self._networks = [ip_network(network) for network in networks]
        self._required = required
        self._trusts = lru_cache(_PEERS_REMEMBERED)(self._is_proxy)

    def identify(self, scope: Scope) -> Identity | None:
        """Return whom the proxy names; None where the request comes from no proxy, or names nobody.

        Raises:
            Unauthorized: the name cannot be one, there are two, or there is none and there had to be one.
        """
        client = scope["client"]
        if client is None or not self._trusts(client[0]):
            return None
        header = self._header.encode()
        named = [value for name, value in scope["headers"] if name == header]
        if not named and not self._required:
            return None
        if len(named) != 1:
            raise Unauthorized(f"The proxy must name one caller in the header {self._header}; it names {len(named)}.")
        try:
            # White space around a value is none of it.
            return Identity(principal=check_principal(named[0].strip(b" \t").decode("latin-1")))
        except ValueError as error:
            raise Unauthorized(f"The header {self._header} names no caller: {error}.") from None

    def _is_proxy(self, peer: str) -> bool:
        try:
            address = ip_address(peer)
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)
