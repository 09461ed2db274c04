"""The audit log of commands: what was done to callers and their data, by whom."""

import os
import pwd
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gateway.config.schema import TelemetryConfig
from gateway.telemetry import names
from gateway.telemetry.audit import note_action
from gateway.telemetry.logs import configure_logging


@contextmanager
def audited(telemetry: TelemetryConfig, action: str, object: str, **fields: Any) -> Iterator[dict[str, Any]]:
    """Leave a record of what the block does: on stderr and, where there is one, in the audit file.

    Args:
        telemetry: the form of the log.
        action: what is done, as the command is named.
        object: what it is done to, without a secret.
        fields: what else there is to tell, by names of log fields; the block may add to what it gets.
    """
    configure_logging(telemetry.log_level, telemetry.log_format, sys.stderr, audit_file=telemetry.audit_file)
    told = {names.FIELD_OUTCOME: "done", **fields}
    try:
        yield told
    except BaseException:
        told[names.FIELD_OUTCOME] = "failed"
        raise
    finally:
        note_action(action, actor=_find_actor(), object=object, **told)


def _find_actor() -> str:
    """Return the name of the system's user, or the number where there is no name, as in a container.

    Not as the environment has it, which is everybody's own to write.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"
