"""Parameters that the gateway does not know, and passes on."""

import logging

from gateway.protocol.requests import CreateRequest
from gateway.telemetry.names import LOGGER_ENGINE

_logger = logging.getLogger(LOGGER_ENGINE)
# Names are the callers' words: only so many are remembered.
_MAX_NOTED = 256


class Extras:
    """Says once of each that it is passed on."""

    def __init__(self) -> None:
        self._noted: set[str] = set()

    def note(self, request: CreateRequest) -> None:
        """Log what a request has that nobody was told of yet."""
        for name in request.extras:
            if name not in self._noted and len(self._noted) < _MAX_NOTED:
                self._noted.add(name)
                _logger.info(
                    "an unknown parameter is forwarded upstream; this is said once", extra={"parameter": name[:64]}
                )
