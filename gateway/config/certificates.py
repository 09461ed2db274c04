"""Files of certificate authorities."""

import ssl


class CertificateFileError(ValueError):
    """The file cannot be used; the text names it and says why."""


def trust_file(file: str) -> ssl.SSLContext:
    """Return a client's TLS context that trusts the authorities in a PEM file and no others.

    Raises:
        CertificateFileError: it cannot be read or holds no certificate.
    """
    try:
        return ssl.create_default_context(cafile=file)
    except ssl.SSLError as error:
        raise CertificateFileError(f"{file}: holds no certificates in PEM form") from error
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise CertificateFileError(f"{file}: {reason or 'it cannot be read'}") from error
