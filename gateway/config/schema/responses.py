"""The keys of responses and of how they are made."""

from typing import Annotated, Literal

from gateway.config.kinds import Count, Duration, DurationOrZero, Size, doc
from gateway.config.schema.section import Section
from gateway.config.units import MIB


class ResponsesConfig(Section, frozen=True, kw_only=True):
    """Limits of one response, each independent of the others, and how requests are read."""

    max_retained_bytes: Annotated[
        Size,
        doc(
            "Logical output kept for one response over all its rounds and tool results: the UTF-8 bytes of its strings "
            "and 32 bytes for each JSON value. It is an account, not resident memory.",
            env="AGENTIC_MAX_RETAINED_RESPONSE_BYTES",
            live=True,
        ),
    ] = 8 * MIB
    max_upstream_json_bytes: Annotated[
        Size, doc("One JSON body from the inference server.", env="AGENTIC_MAX_UPSTREAM_JSON_BYTES", live=True)
    ] = 16 * MIB
    max_upstream_sse_line_bytes: Annotated[
        Size,
        doc(
            "One line of an event stream from the inference server.",
            env="AGENTIC_MAX_UPSTREAM_SSE_LINE_BYTES",
            live=True,
        ),
    ] = 16 * MIB
    max_stream_event_bytes: Annotated[
        Size,
        doc(
            "One event sent to a client, as serialized. The last event of a stream repeats the whole response.",
            env="AGENTIC_MAX_STREAM_EVENT_BYTES",
            live=True,
        ),
    ] = 1 * MIB
    strict_parameters: Annotated[
        bool, doc("Refuse unknown request fields with 400 instead of passing them to the inference server.", live=True)
    ] = False
    reasoning_summary: Annotated[
        Literal["off", "instead", "both"],
        doc(
            "Show reasoning text as summary events too, for clients that read only those: `both` besides the text, "
            "`instead` of it when the request asked for a summary.",
            live=True,
        ),
    ] = "off"
    max_json_depth: Annotated[
        Count, doc("Nesting of a request body; deeper is refused with 400.", le=900, live=True)
    ] = 100
    max_tools: Annotated[Count, doc("Tools in one request; more are refused with 400.", live=True)] = 1024
    max_input_items: Annotated[Count, doc("Input items in one request; more are refused with 400.", live=True)] = 10_000


class EngineConfig(Section, frozen=True, kw_only=True):
    """How long one response may go on, in how many rounds, and how many are handled together."""

    run_deadline_seconds: Annotated[Duration, doc("Time for one response; then it ends as failed.", live=True)] = 3600.0
    max_rounds: Annotated[
        Count,
        doc(
            "Inference calls for one response, for which the gateway runs tools between them; then it ends as "
            "incomplete.",
            live=True,
        ),
    ] = 64
    coalesce_seconds: Annotated[
        DurationOrZero,
        doc(
            "While many responses are being made, what inference servers send within so long is handled together. That "
            "saves processor time, and delays an event by as much at most; 0 delays nothing.",
            le=0.05,
            live=True,
        ),
    ] = 0.001
    coalesce_responses: Annotated[
        Count, doc("From how many responses in the making at once events are handled together.", live=True)
    ] = 16
