"""The keys of logs and traces."""

from typing import Annotated, Literal

from gateway.config.kinds import FilePath, Size, doc
from gateway.config.schema.section import Section
from gateway.config.units import KIB


class TelemetryConfig(Section, frozen=True, kw_only=True):
    """Logs, and what traces may tell. Whether there are traces and where they go, the OTEL_* variables say."""

    log_level: Annotated[
        Literal["debug", "info", "warning", "error"], doc("Least severe level that is logged.", live=True)
    ] = "info"
    capture_content: Annotated[
        bool,
        doc(
            "Put what models are asked and what they answer into traces: instructions, input, tools and output. "
            "Whoever sees the traces then sees what callers write.",
            live=True,
        ),
    ] = False
    capture_content_max_bytes: Annotated[
        Size, doc("Longest part of a call's content in a trace, as JSON; what is longer is cut.", live=True)
    ] = 32 * KIB
    audit_file: Annotated[
        FilePath | None,
        doc(
            "File to which each record of the audit log is appended besides, as a JSON line: what was done to keys, to "
            "the database and to the gateway itself, by whom."
        ),
    ] = None
    log_format: Annotated[
        Literal["auto", "json", "console"], doc("auto writes for people on a terminal and JSON lines elsewhere.")
    ] = "auto"
