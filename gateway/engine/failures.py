"""The end of a response that took too long, and how metrics and log name what failed."""

import logging

from gateway.protocol.errors import GatewayError, ResourceLimitExceeded, Unavailable, UpstreamRefused, UpstreamTimeout
from gateway.telemetry import names

_logger = logging.getLogger(names.LOGGER_ENGINE)


def deadline_passed(seconds: float, bound: str) -> GatewayError:
    """Return the error of a response that took longer than `bound`, `engine.run_deadline_seconds` for most."""
    section, key = bound.split(".")
    return GatewayError(f"The response was not finished within {seconds:g} seconds ([{section}] {key}).", bound=bound)


def shutting_down() -> Unavailable:
    """Return the error of what the gateway ends, or does not begin, because it stops."""
    return Unavailable("The gateway is shutting down; send the request again.")


def name_outcome(error: GatewayError) -> str:
    """Return how `gateway_upstream_requests_total` calls the outcome of a call that was not accepted."""
    match error:
        case UpstreamRefused():
            return str(error.upstream_status)
        case UpstreamTimeout():
            return "timeout"
        case Unavailable():
            return "breaker_open"
        case _:
            return "unavailable"


def log_failure(error: GatewayError, what: str = "response") -> None:
    """Say why a response, or whatever else was made, failed, under the ids of the request at hand.

    What the caller can mend, and what the gateway puts off on purpose, is no warning.
    """
    fields: dict[str, str | int] = {names.FIELD_CODE: error.code}
    if isinstance(error, UpstreamRefused):
        fields[names.FIELD_UPSTREAM_STATUS] = error.upstream_status
    elif isinstance(error, ResourceLimitExceeded):
        fields[names.FIELD_RESOURCE] = error.resource
    # A refusal may quote the caller's words; the other messages are ours, or the engine's about itself.
    reason = "refused by the inference server" if isinstance(error, UpstreamRefused) else error.message
    expected = error.status < 500 or isinstance(error, Unavailable)
    _logger.log(logging.INFO if expected else logging.WARNING, "%s failed: %s", what, reason, extra=fields)
