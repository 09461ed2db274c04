"""The documents that an issuer publishes, fetched within bounds."""

from typing import Any
from urllib.parse import urlsplit

from gateway.config.schema import OidcConfig
from gateway.protocol.errors import UpstreamError, UpstreamTimeout
from gateway.upstream.control import ControlClient, Reply
from gateway.upstream.pool import ConnectionPool
from gateway.upstream.tls import open_context

_BUFFER_BYTES = 16 * 1024
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}


class DocumentError(Exception):
    """A document cannot be had; the text, for the operator's log, says why."""


class DocumentClient:
    """Gets JSON documents, each on a connection of its own. Redirects are not followed: they could lead anywhere.

    Args:
        oidc: bounds of a document, and whom to trust.

    Raises:
        CertificateFileError: the file of certificate authorities cannot be used.
    """

    def __init__(self, oidc: OidcConfig) -> None:
        self._oidc = oidc
        self._tls = open_context("https:", ca_file=oidc.ca_file)

    async def get(self, url: str) -> dict[str, Any]:
        """Return the JSON object at a URL.

        Raises:
            DocumentError: there is none, or not in time, or it is too large.
        """
        try:
            reply = await self._ask(url)
        except UpstreamTimeout:
            raise DocumentError(f"{url}: no answer within {self._oidc.fetch_timeout_seconds:g} seconds") from None
        except UpstreamError as error:
            raise DocumentError(f"{url}: {error.__cause__ or 'no whole answer, or too large a one'}") from error
        if reply.status != 200:
            raise DocumentError(f"{url}: answered with {reply.status} instead of 200")
        document = reply.document()
        if not document:
            raise DocumentError(f"{url}: the answer is no JSON object")
        return document

    async def _ask(self, url: str) -> Reply:
        parts = urlsplit(url)
        tls = self._tls if parts.scheme == "https" else None
        client = ControlClient(
            lambda: ConnectionPool(
                f"{parts.scheme}://{parts.netloc}",
                tls=tls,
                limit=1,
                keepalive=0.0,
                connect_timeout=self._oidc.fetch_timeout_seconds,
                buffer_bytes=_BUFFER_BYTES,
                max_header_bytes=self._oidc.max_document_bytes,
            ),
            {"Host": parts.netloc, **_HEADERS},
            timeout=self._oidc.fetch_timeout_seconds,
            max_bytes=self._oidc.max_document_bytes,
        )
        client.start()
        try:
            return await client.get((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
        finally:
            await client.close()
