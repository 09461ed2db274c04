"""The audit log of commands: what was done to callers, by whom."""

import getpass
import logging
import os
import sys
from typing import Final

from gateway.config.schema import TelemetryConfig
from gateway.telemetry import names
from gateway.telemetry.logs import configure_logging

_logger: Final = logging.getLogger(names.LOGGER_AUDIT)


def note_action(telemetry: TelemetryConfig, action: str, principal: str, kept_in: str, **fields: object) -> None:
    """Leave a record on stderr, whatever the level of the log.

    Args:
        telemetry: the form of the log.
        action: what was done, in a few words.
        principal: whom it concerns.
        kept_in: the file or the database, without a secret.
        fields: what else there is to tell, by names of log fields.
    """
    configure_logging(telemetry.log_level, telemetry.log_format, sys.stderr)
    _logger.info(
        action,
        extra={
            names.FIELD_ACTION: action,
            names.FIELD_PRINCIPAL: principal,
            names.FIELD_ACTOR: _find_actor(),
            names.FIELD_KEPT_IN: kept_in,
            **fields,
        },
    )


def _find_actor() -> str:
    """Return the name of the system's user, or its number where it has no name, as in a container."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"
