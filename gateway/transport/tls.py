"""TLS between a client's socket and the protocol that serves it, with flow control as without TLS."""

import asyncio
import logging
import ssl
from contextlib import suppress
from typing import Any, cast

from gateway.telemetry.names import LOGGER_SERVER

# Plain bytes handed on at once; a record holds 16 KiB at most.
_SLICE_BYTES = 64 * 1024
_logger = logging.getLogger(LOGGER_SERVER)


class TlsConnection(asyncio.Transport, asyncio.Protocol):
    """A protocol to the socket and a transport to what serves the client.

    What is written is encrypted and passed to the socket's transport at once. So that transport holds all that waits,
    and its size and its pauses tell how far the client is; the event loop's own TLS keeps a second buffer, behind which
    a client that reads slowly looks like one that does not read at all.

    The connection counts, and its time for a request runs, from the moment it is accepted: a client that does not
    finish the handshake has no bounds of its own. It can be told nothing.

    Args:
        context: certificate and key.
        served: gets the connection, as it would without TLS.
    """

    def __init__(self, context: ssl.SSLContext, served: asyncio.Protocol) -> None:
        super().__init__()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._context = context
        self._served = served
        self._socket: asyncio.Transport
        self._shaken = False
        self._ended = False
        self._paused = False

    # ------------------------------------------------------------ towards the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Let the connection be served."""
        self._socket = cast("asyncio.Transport", transport)
        self._served.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell whoever serves it, and let go of him."""
        served, self._served = self._served, asyncio.Protocol()
        self._ended = True
        served.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Go on with the handshake, or hand on what is in the records that are complete."""
        if not self._ended:
            self._incoming.write(data)
            self._read()

    def eof_received(self) -> None:
        """Take it that the client has gone, as without TLS; the socket's transport closes."""
        self._read()
        self._served.eof_received()

    def pause_writing(self) -> None:
        """Pass it on: the client has to catch up."""
        self._served.pause_writing()

    def resume_writing(self) -> None:
        """Pass it on: the client has caught up."""
        self._served.resume_writing()

    # ------------------------------------------------------------ towards what serves the client

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send; what comes before the handshake or after the end is dropped."""
        if data and self._shaken and not self._ended:
            self._tls.write(data)
            self._flush()

    def write_eof(self) -> None:
        """Tell the client that nothing follows, and drop what it sends from now on."""
        if self._shaken:
            self._take_leave()
            self._socket.write_eof()
        else:
            self._socket.close()

    def can_write_eof(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Send what waits, and that nothing follows; then close."""
        self._take_leave()
        self._socket.close()

    def abort(self) -> None:
        """Close at once."""
        self._ended = True
        self._socket.abort()

    def is_closing(self) -> bool:
        """Whether the connection is closed or about to be."""
        return self._socket.is_closing()

    def get_write_buffer_size(self) -> int:
        """Return how many bytes wait to leave."""
        return self._socket.get_write_buffer_size()

    def pause_reading(self) -> None:
        """Hand nothing on until told to go on."""
        self._paused = True
        self._socket.pause_reading()

    def resume_reading(self) -> None:
        """Go on, first with what has arrived already."""
        self._paused = False
        self._socket.resume_reading()
        asyncio.get_running_loop().call_soon(self._read)

    def get_protocol(self) -> asyncio.BaseProtocol:
        """Return what serves the client."""
        return self._served

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Let another protocol serve the client from now on."""
        self._served = cast("asyncio.Protocol", protocol)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection; `sslcontext` tells that it is encrypted."""
        if name == "sslcontext":
            return self._context
        if name == "ssl_object":
            return self._tls
        return self._socket.get_extra_info(name, default)

    # ------------------------------------------------------------ inside

    def _read(self) -> None:
        try:
            if not self._shaken:
                self._tls.do_handshake()
                self._shaken = True
            while not self._paused and not self._ended:
                data = self._tls.read(_SLICE_BYTES)
                if not data:
                    self._end_by_client()
                    break
                self._served.data_received(data)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            # Scanners and probes would fill the log at any other level.
            _logger.debug("TLS with a client failed: %s", error.reason or type(error).__name__)
            self._flush()
            self._ended = True
            self._socket.close()
            return
        self._flush()

    def _end_by_client(self) -> None:
        """Take the client's word that it sends no more for its leaving, as the end of an unencrypted stream."""
        self._served.eof_received()
        self.close()

    def _take_leave(self) -> None:
        if self._shaken and not self._ended:
            self._ended = True
            # It would wait for the client's answer, which is of no interest.
            with suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()

    def _flush(self) -> None:
        if self._outgoing.pending:
            self._socket.write(self._outgoing.read())
