"""Small questions to the inference server beside the inferences: health, version, models."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from gateway.protocol.codec import decode
from gateway.protocol.errors import UpstreamError, UpstreamTimeout, UpstreamUnavailable
from gateway.upstream.connection import Connection, write_head
from gateway.upstream.pool import ConnectionPool


class Reply(Struct, frozen=True):
    """A whole small answer.

    Attributes:
        status: HTTP status.
        headers: response headers, names in lower case.
        body: at most the configured number of bytes.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> dict[str, Any]:
        """Return the body as a JSON object, `{}` when it is none."""
        try:
            document = decode(self.body)
        except ValueError:
            return {}
        return document if isinstance(document, dict) else {}


class ControlClient:
    """GET requests with a small pool of their own, so that a full inference pool never looks like a dead server.

    Args:
        open_pool: opens the control pool.
        headers: sent with every request.
        timeout: seconds for one answer.
        max_bytes: largest answer.
    """

    def __init__(
        self, open_pool: Callable[[], ConnectionPool], headers: Mapping[str, str], *, timeout: float, max_bytes: int
    ) -> None:
        self._open_pool = open_pool
        self._pool: ConnectionPool | None = None
        self._headers = headers
        self._timeout_seconds = timeout
        self._max_bytes = max_bytes

    def start(self) -> None:
        """Open the pool."""
        self._pool = self._open_pool()

    def reconfigure(self, *, timeout: float, max_bytes: int) -> None:
        """Use other bounds for every question from now on."""
        self._timeout_seconds = timeout
        self._max_bytes = max_bytes

    async def get(self, path: str) -> Reply:
        """Return the answer to `GET {url}{path}`, whatever its status.

        Raises:
            UpstreamUnavailable: no connection, or it broke.
            UpstreamTimeout: no whole answer in time.
            UpstreamError: the answer is larger than allowed or not HTTP.
        """
        pool = self._pool
        if pool is None:
            raise UpstreamUnavailable("The client of the inference server is not started.")
        head = write_head("GET", pool.base_path + path, self._headers)
        try:
            async with asyncio.timeout(self._timeout_seconds):
                connection = await pool.acquire()
                try:
                    await connection.call(head, b"")
                    return Reply(connection.status, connection.headers, await self._read(connection, path))
                finally:
                    pool.release(connection)
        except TimeoutError as error:
            message = f"The inference server did not answer GET {path} within {self._timeout_seconds:g} seconds."
            raise UpstreamTimeout(message) from error

    async def close(self) -> None:
        """Close the pool. Idempotent."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    async def _read(self, connection: Connection, path: str) -> bytes:
        body = bytearray()
        while piece := await connection.read():
            body += piece
            if len(body) > self._max_bytes:
                raise UpstreamError(
                    f"The inference server's answer to GET {path} is larger than max_upstream_json_bytes "
                    f"({self._max_bytes} bytes)."
                )
        return bytes(body)
