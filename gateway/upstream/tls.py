"""Whom to trust when a server is reached by TLS."""

import ssl
from urllib.parse import urlsplit

from gateway.config.certificates import trust_file


def open_context(url: str, *, ca_file: str | None = None, verify: bool = True) -> ssl.SSLContext | None:
    """Return the TLS context for a server, or None when its URL is not https.

    Args:
        url: the server's address.
        ca_file: PEM file of the authorities to trust in the place of the system's.
        verify: whether to check certificate and host name at all.

    Raises:
        CertificateFileError: `ca_file` cannot be used.
    """
    if urlsplit(url).scheme != "https":
        return None
    context = trust_file(ca_file) if ca_file else ssl.create_default_context()
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def explain_rejection(error: ssl.SSLCertVerificationError) -> str:
    """Return why a certificate was rejected, without the name of the host."""
    return error.verify_message.partition(",")[0].lower()
