"""Files of certificates: of authorities to trust, and of the gateway itself."""

import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, Literal, NoReturn

TlsVersion = Literal["1.2", "1.3"]

_VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}


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
        raise CertificateFileError(f"{file}: {_reason(error)}") from error


def present_files(cert_file: str, key_file: str, min_version: TlsVersion = "1.2") -> ssl.SSLContext:
    """Return a server's TLS context that shows the certificate in a PEM file.

    Args:
        cert_file: the certificate, followed by those that lead to an authority.
        key_file: its private key, without a passphrase.
        min_version: the oldest version of TLS that clients may speak.

    Raises:
        CertificateFileError: a file cannot be read or is no PEM, or the key belongs to another certificate.
    """
    # The library names neither file in its errors.
    for file in (cert_file, key_file):
        _read(file)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = _VERSIONS[min_version]
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_cert_chain(cert_file, key_file, password=_refuse_passphrase)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise CertificateFileError(f"{key_file}: is not the key of the certificate in {cert_file}") from error
        raise CertificateFileError(f"{cert_file} and {key_file}: no certificate and key in PEM form") from error
    except _PassphraseWanted as error:
        raise CertificateFileError(f"{key_file}: needs a passphrase; write the key without one") from error
    return context


def read_expiry(cert_file: str) -> datetime:
    """Return the moment until which the first certificate in a PEM file is valid.

    Raises:
        CertificateFileError: it cannot be read or holds no certificate.
    """
    # Who has no certificate need not load the library.
    from cryptography.x509 import load_pem_x509_certificate  # noqa: PLC0415

    try:
        return load_pem_x509_certificate(_read(cert_file)).not_valid_after_utc.astimezone(UTC)
    except ValueError as error:
        raise CertificateFileError(f"{cert_file}: holds no certificate in PEM form") from error


class _PassphraseWanted(Exception):
    """The key is encrypted."""


def _refuse_passphrase() -> NoReturn:
    """Be asked in the place of the terminal."""
    raise _PassphraseWanted


def _read(file: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:
        raise CertificateFileError(f"{file}: {_reason(error)}") from error


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or "it cannot be read"
