"""The sockets that are bound before anything else is built, so that an address in use is known at once."""

import errno
import socket
from typing import NamedTuple

from gateway.app import StartError
from gateway.config.addresses import split_bind
from gateway.config.schema import GatewayConfig


class Listeners(NamedTuple):
    """The bound sockets, not yet listening."""

    public: socket.socket
    admin: socket.socket | None

    def close(self) -> None:
        """Close both; closing twice is fine."""
        self.public.close()
        if self.admin is not None:
            self.admin.close()


def bind_listeners(config: GatewayConfig) -> Listeners:
    """Bind the public and, when enabled, the admin address.

    Raises:
        StartError: an address is in use, not ours to bind, or does not exist.
    """
    server = config.server
    public = _bind(server.host, server.port, "[server] host and port")
    # Accepted sockets inherit both options from the listening one.
    public.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, server.socket_send_buffer_bytes)
    public.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not config.admin.enabled:
        return Listeners(public, None)
    try:
        return Listeners(public, _bind(*split_bind(config.admin.bind), "[admin] bind"))
    except StartError:
        public.close()
        raise


def show_bound(bound: socket.socket) -> str:
    """Return the address of a bound socket, port included."""
    host, port = bound.getsockname()[:2]
    return _show_address(host, port)


def _bind(host: str, port: int, key: str) -> socket.socket:
    address = _show_address(host, port)
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise StartError(f"{host} is no address of this machine ({error.strerror}); change {key}.") from error
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(target)
    except OSError as error:
        bound.close()
        reason = "is in use" if error.errno == errno.EADDRINUSE else f"cannot be bound ({error.strerror})"
        raise StartError(f"address {address} {reason}; stop what listens there or change {key}.") from error
    return bound


def _show_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
