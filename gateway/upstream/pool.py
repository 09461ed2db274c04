"""Connections to one inference server: bounded in number, kept for a while, never shared by two calls."""

import asyncio
import ssl
from urllib.parse import urlsplit

from gateway.protocol.errors import UpstreamUnavailable
from gateway.timing.permits import Permits
from gateway.upstream.connection import CLOSED_EARLY, Connection
from gateway.upstream.failures import ConnectTimeout, NoRoom, NotConnected
from gateway.upstream.tls import explain_rejection

# How long an answer that is complete for us may take to end on the wire before its connection is given up.
_REST_SECONDS = 1.0


class ConnectionPool:
    """Opens, hands out and takes back connections.

    Args:
        url: `http://HOST[:PORT][/PATH]` or `https://…`.
        tls: what https needs; None for http.
        limit: most connections at once; a call that finds none free waits for one, within its own timeout.
        keepalive: seconds an idle connection is kept; below the server's own, so that the server rarely closes first.
        connect_timeout: seconds for one connection to be made.
        buffer_bytes: size of each connection's read buffer.
        max_header_bytes: largest head of an answer.

    Attributes:
        address: the server's host and port.
        host_header: the server's name for requests.
        base_path: path in front of every target.
    """

    def __init__(
        self,
        url: str,
        *,
        tls: ssl.SSLContext | None,
        limit: int,
        keepalive: float,
        connect_timeout: float,
        buffer_bytes: int,
        max_header_bytes: int,
    ) -> None:
        parts = urlsplit(url)
        self.address = (parts.hostname or "", parts.port or (443 if tls else 80))
        self._tls = tls
        self.host_header = parts.netloc.rpartition("@")[2]
        self.base_path = parts.path.rstrip("/")
        self._keepalive = keepalive
        self._connect_timeout = connect_timeout
        self._buffer_bytes = buffer_bytes
        self._max_header_bytes = max_header_bytes
        self._free = Permits(limit)
        self._idle: dict[Connection, float] = {}
        self._all: set[Connection] = set()
        self._closed = False

    def reconfigure(self, *, connect_timeout: float) -> None:
        """Wait another time for every connection from now on."""
        self._connect_timeout = connect_timeout

    def take(self) -> Connection | None:
        """Return an idle connection for one call, to be given back as one of `acquire`'s; None if there is none."""
        if self._free.take_at_once():
            connection = self._take_idle()
            if connection is not None:
                return connection
            self._free.give_back()
        return None

    async def acquire(self) -> Connection:
        """Return a connection for one call; it must be given back by `release` or `retire`.

        Raises:
            NotConnected: the server refuses, does not exist or hung up during the TLS handshake.
            ConnectTimeout: the connection was not made in time.
            NoRoom: every connection stayed in use for that long.
            UpstreamUnavailable: its certificate is not trusted, or it does not speak TLS.
        """
        if not self._free.take_at_once():
            await self._wait_for_room()
        try:
            self._require_open()
            return self._take_idle() or await self._connect()
        except BaseException:
            self._free.give_back()
            raise

    def release(self, connection: Connection) -> None:
        """Take a connection back: kept when another call may follow, closed at once otherwise."""
        self._free.give_back()
        if connection.is_reusable and not self._closed:
            self._idle[connection] = connection.loop.time()
        else:
            connection.abort()

    def retire(self, connection: Connection) -> None:
        """Take a connection back whose answer is complete for the caller, though perhaps not yet on the wire."""
        if connection.is_complete:
            connection.discard(self.release)
            return
        timer = connection.loop.call_later(_REST_SECONDS, connection.abort)

        def give_back(connection: Connection) -> None:
            timer.cancel()
            self.release(connection)

        connection.discard(give_back)

    def close(self) -> None:
        """Close every connection, those in use too."""
        self._closed = True
        for connection in list(self._all):
            connection.abort()

    def _take_idle(self) -> Connection | None:
        while self._idle:
            connection, since = next(iter(self._idle.items()))
            if since >= connection.loop.time() - self._keepalive:
                break
            del self._idle[connection]
            connection.abort()
        while self._idle:
            connection, _ = self._idle.popitem()
            if not connection.is_stale:
                return connection
            connection.abort()
        return None

    def _lose(self, connection: Connection) -> None:
        self._all.discard(connection)
        self._idle.pop(connection, None)

    def _require_open(self) -> None:
        if self._closed:
            raise UpstreamUnavailable("The client of the inference server is closed.")

    async def _wait_for_room(self) -> None:
        try:
            async with asyncio.timeout(self._connect_timeout):
                await self._free.take()
        except TimeoutError as error:
            raise NoRoom(
                f"No connection to the inference server became free within {self._connect_timeout:g} seconds "
                "([upstream] max_connections).",
                bound="upstream.max_connections",
            ) from error

    async def _connect(self) -> Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, connection = await loop.create_connection(self._make_connection, *self.address, ssl=self._tls)
        except TimeoutError as error:
            raise ConnectTimeout(
                f"No connection to the inference server within {self._connect_timeout:g} seconds."
            ) from error
        except ssl.SSLCertVerificationError as error:
            raise UpstreamUnavailable(
                f"The inference server's certificate is not trusted: {explain_rejection(error)}."
            ) from error
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError) as error:
            raise NotConnected("The inference server hung up during the TLS handshake.") from error
        except ssl.SSLError as error:
            raise UpstreamUnavailable("The inference server does not speak TLS at this address.") from error
        except (OSError, UnicodeError) as error:
            raise NotConnected("The inference server cannot be reached.") from error
        if connection.is_open:
            self._all.add(connection)
        if self._closed:
            connection.abort()
            self._require_open()
        if not connection.is_open:
            raise NotConnected(CLOSED_EARLY)
        return connection

    def _make_connection(self) -> Connection:
        return Connection(self._buffer_bytes, self._lose, max_header_bytes=self._max_header_bytes)
