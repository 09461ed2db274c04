"""The audit log: who did what to the gateway, and what came of it. One record each, whatever the level of the log."""

import logging
import os
from typing import Any, Final

from gateway.telemetry import names

_audit: Final = logging.getLogger(names.LOGGER_AUDIT)
_logger: Final = logging.getLogger(names.LOGGER_SERVER)
_MODE: Final = 0o600


def note_action(action: str, *, actor: str, object: str, outcome: str, **fields: Any) -> None:
    """Leave a record.

    Args:
        action: what was done, as the command or the signal is named.
        actor: the system's user, or the signal.
        object: what it was done to, without a secret.
        outcome: what came of it, in a word or two.
        fields: what else there is to tell, by names of log fields.
    """
    told = {
        names.FIELD_ACTION: action,
        names.FIELD_ACTOR: actor,
        names.FIELD_OBJECT: object,
        names.FIELD_OUTCOME: outcome,
    }
    _audit.info("%s: %s", action, outcome, extra={**told, **fields})


class AuditFile(logging.Handler):
    """Appends each record to a file as one line, in one write, so that several processes may share it.

    The file is opened for each record: it may be moved away at any time, and there are few. A fault is logged and stops
    nobody.

    Args:
        file: its path; it is made for its owner alone.
    """

    def __init__(self, file: str) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        """Append the record."""
        try:
            descriptor = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, _MODE)
            try:
                os.write(descriptor, (self.format(record) + "\n").encode())
            finally:
                os.close(descriptor)
        except OSError as error:
            # The record itself is in the log, as every one is.
            _logger.error("[telemetry] audit_file %s cannot be written: %s", self._file, error.strerror)  # noqa: TRY400
