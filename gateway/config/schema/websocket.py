"""The keys of WebSockets: what one connection may hold, and how long it lives."""

from typing import Annotated, Literal

from msgspec import field

from gateway.config.kinds import Count, Duration, DurationOrZero, Names, Size, doc
from gateway.config.schema.section import Section
from gateway.config.units import MIB


class InjectConfig(Section, frozen=True, kw_only=True):
    """`response.inject`: outputs of client tools for a multi-agent response that runs. Bounds are a connection's."""

    max_outstanding: Annotated[
        Count,
        doc("Injects and steers that wait to be answered; a further one is refused with 429.", live=True),
    ] = 32
    max_outstanding_bytes: Annotated[
        Size, doc("Bytes of those that wait to be answered; beyond, one is refused with 429.", live=True)
    ] = 12 * MIB
    completed_routes_max: Annotated[
        Count,
        doc(
            "Responses for which it is remembered that they have ended, the oldest going first. As many may run and "
            "be injected into at once; a further create is refused with 429.",
            live=True,
        ),
    ] = 128
    completed_route_ttl_s: Annotated[
        Duration, doc("How long it is remembered that a response has ended; then its id is unknown.", live=True)
    ] = 60.0


class SteerConfig(Section, frozen=True, kw_only=True):
    """`response.steer`: what the user adds while an answer is being made."""

    max_pending: Annotated[
        Count, doc("Messages that may wait for one response; a further one is refused.", live=True)
    ] = 8
    max_pending_bytes: Annotated[
        Size, doc("Bytes of the messages that may wait on one connection; beyond, one is refused.", live=True)
    ] = MIB
    models: Annotated[Names, doc("The models whose responses may be steered; empty for all.", live=True)] = ()
    cut: Annotated[
        Literal["round", "item"],
        doc(
            "Where an answer is left for what the user adds. round: when the model has finished what it is at; item: "
            "as soon as an output item has ended and another begins.",
            live=True,
        ),
    ] = "round"


class WebSocketConfig(Section, frozen=True, kw_only=True):
    """WebSockets at `/v1/responses`. Every bound but the first two counts of connections is one of a connection."""

    enabled: Annotated[
        bool, doc("Whether to accept WebSockets; without them the upgrade is answered 426, and clients use HTTP.")
    ] = True
    max_connections: Annotated[
        Count, doc("WebSockets open at once; further upgrades are answered 503.", live=True, per_process=True)
    ] = 1024
    max_connections_per_principal: Annotated[
        Count,
        doc("WebSockets one principal may have open at once; further upgrades get 429.", live=True, per_process=True),
    ] = 1024
    max_active: Annotated[
        Count, doc("Responses made at once on one connection, over all its lanes; further creates wait.", live=True)
    ] = 16
    max_named_lanes: Annotated[
        Count,
        doc("Distinct `stream_id`s on one connection; one more is refused, and none is ever freed.", live=True),
    ] = 32
    max_outstanding: Annotated[
        Count, doc("Creates that wait or run on one connection; a further one is refused with 429.", live=True)
    ] = 64
    max_outstanding_bytes: Annotated[
        Size,
        doc("Bytes of the creates that wait or run on one connection; beyond, one is refused with 429.", live=True),
    ] = 12 * MIB
    max_message_bytes: Annotated[
        Size,
        doc("Largest message of a client; a larger one is answered with an error frame 413 and Close 1009.", live=True),
    ] = 10 * MIB
    delivery_max_batches: Annotated[
        Count, doc("Batches of events waiting for one client before its inferences are paused.", live=True)
    ] = 256
    delivery_max_bytes: Annotated[
        Size,
        doc(
            "Bytes of events waiting for one client before its inferences are paused; one batch always fits.", live=True
        ),
    ] = 4 * MIB
    send_deadline_seconds: Annotated[
        Duration,
        doc("A client that takes not one byte for so long is disconnected and its inferences aborted.", live=True),
    ] = 30.0
    lifetime_seconds: Annotated[
        Duration, doc("How long a connection accepts creates; then it ends as soon as what runs has ended.", live=True)
    ] = 3600.0
    lifetime_grace_seconds: Annotated[
        DurationOrZero, doc("How long what runs at the end of the lifetime may go on.", live=True)
    ] = 30.0
    handshake_timeout_seconds: Annotated[
        Duration, doc("A connection that brings no first message for so long is closed.", live=True)
    ] = 60.0
    idle_timeout_seconds: Annotated[
        DurationOrZero,
        doc("A connection on which nothing runs is closed after so long without a message; 0 never does.", live=True),
    ] = 1800.0
    ping_interval_seconds: Annotated[
        DurationOrZero, doc("Time between an answered ping and the next; 0 sends none.", live=True)
    ] = 20.0
    pong_timeout_seconds: Annotated[
        Duration, doc("A client that answers a ping later than this is taken for dead.", live=True)
    ] = 60.0
    close_timeout_seconds: Annotated[
        Duration, doc("How long a client may take to answer Close before the connection is dropped.", live=True)
    ] = 10.0
    progress_seconds: Annotated[
        DurationOrZero,
        doc(
            "A running response that was silent for so long sends `response.in_progress` again, for clients that do "
            "not count pings; 0 never does.",
            live=True,
        ),
    ] = 0.0
    max_checkpoint_bytes: Annotated[
        Size, doc("History kept in memory for the latest response of one lane, as JSON.", live=True)
    ] = 16 * MIB
    max_checkpoint_items: Annotated[
        Count, doc("Items of the history kept in memory for the latest response of one lane.", live=True)
    ] = 32_768
    max_session_bytes: Annotated[
        Size, doc("Histories kept in memory for one connection, those in use included, as JSON.", live=True)
    ] = 32 * MIB
    evict_parent_on_failure: Annotated[
        Literal["same_lane", "never"],
        doc(
            "Whether a create that fails takes the response it continues out of the connection's memory, if that was "
            "the latest of its own lane.",
            live=True,
        ),
    ] = "same_lane"
    inject: InjectConfig = field(default_factory=InjectConfig)
    steer: SteerConfig = field(default_factory=SteerConfig)
