"""Small questions to the inference server beside the inferences: health, version, models."""

from collections.abc import Callable, Mapping
from typing import Any

import aiohttp
import msgspec
from msgspec import Struct

from gateway.protocol.errors import UpstreamError, UpstreamTimeout, UpstreamUnavailable


class Reply(Struct, frozen=True):
    """A whole small answer.

    Attributes:
        status: HTTP status.
        headers: response headers, looked up without regard to case.
        body: at most the configured number of bytes.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes

    def document(self) -> dict[str, Any]:
        """Return the body as a JSON object, `{}` when it is none."""
        try:
            document = msgspec.json.decode(self.body)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return {}
        return document if isinstance(document, dict) else {}


class ControlClient:
    """GET requests with a small pool of their own, so that a full inference pool never looks like a dead server.

    Args:
        open_session: opens the session of the control pool.
        url: base address of the server.
        timeout: seconds for one answer.
        max_bytes: largest answer.
    """

    def __init__(
        self, open_session: Callable[[], aiohttp.ClientSession], url: str, *, timeout: float, max_bytes: int
    ) -> None:
        self._open_session = open_session
        self._session: aiohttp.ClientSession | None = None
        self._url = url
        self._timeout_seconds = timeout
        self._timeout = aiohttp.ClientTimeout(total=timeout)
        self._max_bytes = max_bytes

    def start(self) -> None:
        """Open the pool."""
        self._session = self._open_session()

    async def get(self, path: str) -> Reply:
        """Return the answer to `GET {url}{path}`, whatever its status.

        Raises:
            UpstreamUnavailable: no connection, or it broke.
            UpstreamTimeout: no whole answer in time.
            UpstreamError: the answer is larger than allowed or not HTTP.
        """
        if self._session is None:
            raise UpstreamUnavailable("The client of the inference server is not started.")
        try:
            async with self._session.get(self._url + path, timeout=self._timeout, allow_redirects=False) as response:
                return Reply(response.status, response.headers, await self._read(response, path))
        except TimeoutError as error:
            message = f"The inference server did not answer GET {path} within {self._timeout_seconds:g} seconds."
            raise UpstreamTimeout(message) from error
        except aiohttp.ClientConnectionError as error:
            raise UpstreamUnavailable("The inference server cannot be reached.") from error
        except aiohttp.ClientError as error:
            raise UpstreamError(f"The inference server's answer to GET {path} cannot be read.") from error

    async def close(self) -> None:
        """Close the pool. Idempotent."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _read(self, response: aiohttp.ClientResponse, path: str) -> bytes:
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > self._max_bytes:
                raise UpstreamError(
                    f"The inference server's answer to GET {path} is larger than max_upstream_json_bytes "
                    f"({self._max_bytes} bytes)."
                )
        return bytes(body)
