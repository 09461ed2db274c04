"""Which addresses are of the public internet."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

# What stands in it for an IPv4 address is in the last 32 bits.
_TRANSLATED = ip_network("64:ff9b::/96")
# Each network has an own meaning for these, or none: two that translate, two for documentation and segment routing.
_LOCAL = [ip_network(prefix) for prefix in ("64:ff9b:1::/48", "::ffff:0:0:0/96", "::/96", "3fff::/20", "5f00::/16")]


def is_public(address: str) -> bool:
    """Tell whether an IP address is one of the public internet, an IPv4 address inside an IPv6 one included."""
    found: IPv4Address | IPv6Address = ip_address(address.partition("%")[0])
    if isinstance(found, IPv6Address):
        if found.is_site_local or any(found in network for network in _LOCAL):
            return False
        inner = found.ipv4_mapped or found.sixtofour or (found.teredo and found.teredo[1])
        if found in _TRANSLATED:
            inner = IPv4Address(int(found) & 0xFFFF_FFFF)
        if inner:
            found = inner
    return found.is_global and not found.is_multicast
