"""The keys of logs."""

from typing import Annotated, Literal

from gateway.config.kinds import doc
from gateway.config.schema.section import Section


class TelemetryConfig(Section, frozen=True, kw_only=True):
    """Logs. Traces follow the standard OTEL_* variables."""

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], doc("Least severe level that is logged.", live=True)
    ] = "info"
    log_format: Annotated[
        Literal["auto", "json", "console"], doc("auto writes for people on a terminal and JSON lines elsewhere.")
    ] = "auto"
