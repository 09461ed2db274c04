"""The keys of tools that the gateway runs itself, whatever their kind."""

from typing import Annotated

from gateway.config.kinds import Count, Duration, Size, doc
from gateway.config.schema.section import Section
from gateway.config.units import MIB


class ToolsConfig(Section, frozen=True, kw_only=True):
    """Bounds of tools that the gateway runs itself. Requests that use none of them never meet one of these."""

    max_concurrent_materializations: Annotated[
        Count,
        doc(
            "Calls of tools and listings of servers' tools that run at once, over all responses; further ones wait for "
            "their turn, within the deadline of their response.",
            live=True,
            per_process=True,
        ),
    ] = 16
    call_timeout_seconds: Annotated[
        Duration, doc("Time for one call; then it has failed, which the model is told.", live=True)
    ] = 60.0
    max_output_bytes: Annotated[
        Size, doc("Output of one call; a call with more has failed, which the model is told.", live=True)
    ] = 1 * MIB
