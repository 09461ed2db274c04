"""The keys of background responses."""

from typing import Annotated

from gateway.config.kinds import Count, Duration, DurationOrZero, Size, doc
from gateway.config.schema.section import Section
from gateway.config.units import KIB, MIB


class BackgroundConfig(Section, frozen=True, kw_only=True):
    """Responses that are made on their own (`background: true`), whoever listens."""

    enabled: Annotated[
        bool, doc("Whether background responses are made; if not, `background: true` is refused with 400.")
    ] = True
    max_running: Annotated[
        Count, doc("Background responses made at once; further ones wait.", live=True, per_process=True)
    ] = 64
    max_queued: Annotated[
        Count,
        doc("Background responses that wait; further ones are refused with 429.", live=True, per_process=True),
    ] = 256
    max_readers: Annotated[
        Count,
        doc(
            "Clients that read the events of background responses at once, those that asked for one included; further "
            "ones are refused with 429.",
            live=True,
            per_process=True,
        ),
    ] = 512
    lifetime_seconds: Annotated[
        Duration,
        doc(
            "Time for one background response, its waiting included; then it ends as failed. "
            "[engine] run_deadline_seconds bounds each attempt to make it besides.",
            live=True,
            le=30 * 86_400,
        ),
    ] = 6 * 3600.0
    max_attempts: Annotated[
        Count,
        doc(
            "How often a response is begun in all when the process that makes it dies before it has told any output; "
            "then it ends as failed, as one does at once that has told some.",
            live=True,
            le=100,
        ),
    ] = 3
    heartbeat_seconds: Annotated[
        Duration,
        doc(
            "How often a process looks for its responses that were cancelled elsewhere, for those whose process is "
            "gone, and for events that have had their time.",
            live=True,
            le=60,
        ),
    ] = 2.0
    cancel_wait_seconds: Annotated[
        DurationOrZero,
        doc(
            "How long a cancel waits for the response to end; then it is answered as it is, and ends soon.",
            live=True,
            le=300,
        ),
    ] = 10.0
    poll_interval_seconds: Annotated[
        Duration,
        doc(
            "How often the events of a response that another process makes are looked for, for each of their readers.",
            live=True,
            le=60,
        ),
    ] = 0.5
    flush_interval_seconds: Annotated[
        DurationOrZero,
        doc(
            "The events of a response are stored, and told, together that come within so long of the last time.",
            live=True,
            le=10,
        ),
    ] = 0.1
    flush_bytes: Annotated[
        Size,
        doc("So many bytes of events are stored at once; while they are, the inference is paused.", live=True),
    ] = 256 * KIB
    max_event_bytes: Annotated[
        Size, doc("Events of one response, as stored; above that it ends as failed.", live=True)
    ] = 64 * MIB
    event_retention_seconds: Annotated[
        Duration,
        doc(
            "How long the events of a response that has ended can be read; the response itself stays.",
            live=True,
            le=365 * 86_400,
        ),
    ] = 3600.0
