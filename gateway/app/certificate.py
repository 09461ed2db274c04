"""What the public listener proves its name with."""

import logging
import ssl

from gateway.app.errors import StartError
from gateway.config.certificates import CertificateFileError, present_files, read_expiry
from gateway.config.schema import ServerConfig
from gateway.telemetry.names import LOGGER_SERVER

_logger = logging.getLogger(LOGGER_SERVER)


class ServedCertificate:
    """The certificate that new connections are shown; it changes with the files, at every reload.

    Args:
        server: names the files.

    Attributes:
        context: what a connection is encrypted with, None without a certificate.

    Raises:
        StartError: the files cannot be used.
    """

    def __init__(self, server: ServerConfig) -> None:
        self.context: ssl.SSLContext | None = None
        try:
            self._take(server)
        except CertificateFileError as error:
            raise StartError(f"[server] tls_cert_file and tls_key_file: {error}") from error

    def refresh(self, server: ServerConfig) -> None:
        """Read the files again; what cannot be used leaves everything as it is, and the log says why."""
        try:
            self._take(server)
        except CertificateFileError as error:
            # The traceback would tell nothing.
            _logger.error("the certificate cannot be used; the one before is kept: %s", error)  # noqa: TRY400

    def _take(self, server: ServerConfig) -> None:
        if server.tls_cert_file is None or server.tls_key_file is None:
            self.context = None
            return
        context = present_files(server.tls_cert_file, server.tls_key_file, server.tls_min_version)
        _logger.info(
            "new connections are shown a certificate that is valid until %s", read_expiry(server.tls_cert_file)
        )
        self.context = context
