"""The connection to the provider: bounded in time, in bytes and in where it leads."""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Any, Literal

import httpcore2

from gateway import __version__
from gateway.config.certificates import trust_file
from gateway.config.schema import WebSearchConfig
from gateway.protocol.codec import decode
from gateway.tools.addresses import AddressRefused, GuardedBackend
from gateway.tools.web_search.provider import Call

Outcome = Literal["answered", "refused", "busy", "failed", "timeout", "too_large", "invalid", "unreachable"]

_KEPT_SECONDS = 30.0
_HEADERS = {
    "Accept": "application/json",
    # What is counted is what is read: nothing unpacks to more.
    "Accept-Encoding": "identity",
    "User-Agent": f"responses-gateway/{__version__}",
}
_OUTCOMES: Mapping[int, Outcome] = {401: "refused", 403: "refused", 429: "busy", 503: "busy"}
_ERRORS: tuple[type[Exception], ...] = (
    httpcore2.NetworkError,
    httpcore2.ProtocolError,
    httpcore2.TimeoutException,
    httpcore2.UnsupportedProtocol,
    OSError,
)


class SearchFailed(Exception):
    """A query has no answer; the text says why, and neither what was asked nor with which key.

    Attributes:
        outcome: the kind of failure.
    """

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


class SearchClient:
    """Asks one provider. Redirects are not followed and proxies of the environment are not used.

    Args:
        config: bounds and trust.
        url: base URL of the provider.

    Raises:
        CertificateFileError: the file of certificate authorities cannot be used.
    """

    def __init__(self, config: WebSearchConfig, url: str) -> None:
        self._config = config
        self._url = url
        self._tls = _open_context(config.ca_file)
        self._pool: httpcore2.AsyncConnectionPool | None = None

    async def ask(self, call: Call) -> Any:
        """Return the decoded JSON of the answer.

        Raises:
            SearchFailed: there is none, or not in time, or it is too large.
        """
        seconds = self._config.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                body = await self._exchange(call)
        except TimeoutError:
            raise SearchFailed("timeout", f"no answer within {seconds:g} seconds") from None
        try:
            return decode(body)
        except ValueError:
            raise SearchFailed("invalid", "the answer is no JSON") from None

    async def close(self) -> None:
        """Close the connections. Idempotent."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.aclose()

    async def _exchange(self, call: Call) -> bytes:
        if self._pool is None:
            self._pool = self._open_pool()
        headers = list({**_HEADERS, **call.headers}.items())
        try:
            async with self._pool.stream(
                call.method, f"{self._url}{call.target}", headers=headers, content=call.body or None
            ) as response:
                self._check(response.status, response.headers)
                return await self._read(response)
        except AddressRefused as error:
            raise SearchFailed("unreachable", "its address is private, which is not allowed") from error
        except httpcore2.ConnectError as error:
            raise SearchFailed("unreachable", "no connection can be made") from error
        except _ERRORS as error:
            raise SearchFailed("failed", f"the connection broke ({type(error).__name__})") from error

    def _check(self, status: int, headers: list[tuple[bytes, bytes]]) -> None:
        if status != 200:
            raise SearchFailed(_OUTCOMES.get(status, "failed"), f"the answer has status {status}")
        if any(name.lower() == b"content-encoding" and value.lower() != b"identity" for name, value in headers):
            raise SearchFailed("invalid", "the answer is compressed, which was not asked for")

    async def _read(self, response: httpcore2.Response) -> bytes:
        most = self._config.max_response_bytes
        body = bytearray()
        async for piece in response.aiter_stream():
            body += piece
            if len(body) > most:
                raise SearchFailed("too_large", f"the answer is larger than {most} bytes")
        return bytes(body)

    def _open_pool(self) -> httpcore2.AsyncConnectionPool:
        return httpcore2.AsyncConnectionPool(
            ssl_context=self._tls,
            max_connections=self._config.max_connections,
            keepalive_expiry=_KEPT_SECONDS,
            network_backend=GuardedBackend(allow_private=self._config.allow_private_addresses),
        )


def _open_context(ca_file: str | None) -> ssl.SSLContext:
    return trust_file(ca_file) if ca_file is not None else ssl.create_default_context()
