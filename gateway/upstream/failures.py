"""Calls that failed before the server got a byte of them."""

from gateway.protocol.errors import UpstreamTimeout, UpstreamUnavailable


class NotConnected(UpstreamUnavailable):
    """No connection could be opened, or it was gone before it was used; the next may be better."""


class ConnectTimeout(UpstreamTimeout):
    """A connection was not made in time; the next may be."""


class NoRoom(UpstreamTimeout):
    """Every connection stayed in use, which is the gateway's own bound and no failure of the server."""
