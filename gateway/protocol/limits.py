"""The four independent limits of one response, in bytes."""

from msgspec import Struct

from gateway.protocol.errors import ResourceLimitExceeded

KIB = 1024
MIB = 1024 * KIB

# The minimal `error` event may always be sent, even below a smaller `max_stream_event_bytes`.
MINIMAL_ERROR_BYTES = 320


class Limits(Struct, frozen=True, kw_only=True):
    """What one response may use. No value depends on another.

    Attributes:
        max_retained_bytes: logical output retained for the whole turn, see `ledger`.
        max_upstream_json_bytes: one JSON body of the upstream.
        max_upstream_sse_line_bytes: one line of an upstream event stream, counted while it is read.
        max_stream_event_bytes: one serialized event sent to a client.
    """

    max_retained_bytes: int = 8 * MIB
    max_upstream_json_bytes: int = 16 * MIB
    max_upstream_sse_line_bytes: int = 16 * MIB
    max_stream_event_bytes: int = 1 * MIB

    def exceeded(self, resource: str) -> ResourceLimitExceeded:
        """Return the error that names `resource`, one of the attributes, and its limit."""
        return ResourceLimitExceeded(resource, int(getattr(self, resource)))
