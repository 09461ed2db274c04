"""The keys of logs and traces."""

from typing import Annotated, Literal

from gateway.config.kinds import Count, FilePath, HeaderName, Names, Size, doc
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
    capture_principals: Annotated[
        Names,
        doc(
            "Callers whose requests and answers are written to capture_dir, bodies included: all that these callers "
            "write and read. For a search for a fault, and no longer.",
            live=True,
        ),
    ] = ()
    capture_header: Annotated[
        HeaderName | None,
        doc("Header by which any caller may have one request captured, such as x-gateway-capture.", live=True),
    ] = None
    capture_dir: Annotated[
        FilePath, doc("Folder of captures, one file each; it is made for its owner alone.", live=True)
    ] = "captures"
    capture_max_bytes: Annotated[
        Size, doc("What is kept of each body, from its beginning; of a WebSocket, of each direction.", live=True)
    ] = 256 * KIB
    capture_max_files: Annotated[
        Count,
        doc(
            "Captures in the folder; the oldest go. Beyond so many at once in one process, further requests are not "
            "captured.",
            live=True,
        ),
    ] = 100
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
