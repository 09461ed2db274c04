"""By which names the gateway may be called: its posture towards web pages.

A web page can reach a server on loopback through its visitor's browser: directly, or under a name of its own that
it points to 127.0.0.1 (DNS rebinding). The Host and Origin headers give both away, and a page cannot forge them. A
Host that is an address gives away that no name was used; probes and scrapers call replicas so.
"""

from collections.abc import Iterable
from ipaddress import ip_address

from gateway.config.addresses import is_loopback
from gateway.protocol.errors import Forbidden

_LOOPBACK_NAMES = (b"localhost", b"127.0.0.1", b"::1")


class HostPolicy:
    """Decides by the Host and Origin headers whether a request may pass. On the hot path: set lookups, no parsing.

    Args:
        bound_host: address the listener is bound to.
        allowed_hosts: further names accepted in Host, without a port.
        allowed_origins: origins of web pages that may call.
    """

    __slots__ = ("_accepted", "_accepts_addresses", "_bound_host", "_hosts", "_origins", "accepts_any_host")

    def __init__(self, bound_host: str, allowed_hosts: Iterable[str] = (), allowed_origins: Iterable[str] = ()) -> None:
        self._bound_host = bound_host
        self._accepts_addresses = not is_loopback(bound_host)
        self.reconfigure(allowed_hosts, allowed_origins)

    def reconfigure(self, allowed_hosts: Iterable[str], allowed_origins: Iterable[str]) -> None:
        """Decide by other lists from now on."""
        listed = {host.encode() for host in allowed_hosts}
        self.accepts_any_host = not listed and self._accepts_addresses
        self._hosts = frozenset({*_LOOPBACK_NAMES, self._bound_host.encode(), *listed})
        # The Host header that passed last; most callers send the same.
        self._accepted: bytes | None = None
        self._origins = frozenset(origin.encode() for origin in allowed_origins)

    def check(self, host: bytes | None, origin: bytes | None) -> None:
        """Let the request pass or refuse it.

        Args:
            host: the Host header, None without one.
            origin: the Origin header, which browsers send, None without one.

        Raises:
            Forbidden: the request was made for another name, or by a page of another origin.
        """
        if not self.accepts_any_host and (host is None or host != self._accepted):
            if host is None or not self._accepts_host(_host_name(host)):
                raise Forbidden(
                    "The Host header names no host of this gateway; add the name to [server] allowed_hosts.",
                    code="host_not_allowed",
                )
            self._accepted = host
        if origin is not None and not self._accepts_origin(origin.lower(), host):
            raise Forbidden(
                "Web pages of this origin may not call the gateway; add it to [server] allowed_origins.",
                code="origin_not_allowed",
            )

    def _accepts_host(self, name: bytes) -> bool:
        return name in self._hosts or (self._accepts_addresses and _is_address(name))

    def cors_headers(self, origin: bytes | None) -> tuple[tuple[bytes, bytes], ...]:
        """Return what lets a page of a listed origin read an answer; nothing for any other."""
        if origin is None or origin.lower() not in self._origins:
            return ()
        return (b"access-control-allow-origin", origin), (b"vary", b"Origin")

    def _accepts_origin(self, origin: bytes, host: bytes | None) -> bool:
        authority = origin.partition(b"://")[2]
        if host is not None and authority == host.lower():
            return True
        return origin in self._origins or _host_name(authority) in _LOOPBACK_NAMES


def _host_name(authority: bytes) -> bytes:
    """Return the host of `host`, `host:port`, `[IPv6]` or `[IPv6]:port`, lower-cased, without brackets."""
    if authority.startswith(b"["):
        return authority[1:].partition(b"]")[0].lower()
    return authority.partition(b":")[0].lower()


def _is_address(name: bytes) -> bool:
    try:
        ip_address(name.decode("latin-1"))
    except ValueError:
        return False
    return True
