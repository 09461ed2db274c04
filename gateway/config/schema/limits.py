"""The keys of what callers may ask for."""

from typing import Annotated

from gateway.config.kinds import Count, CountOrZero, doc
from gateway.config.schema.section import Section


class LimitsConfig(Section, frozen=True, kw_only=True):
    """What one principal may have, and all together. Each worker process counts for itself.

    A create counts once, over HTTP or as a frame of a WebSocket, and so does a call that is passed through; reading and
    deleting count for nothing, and an open WebSocket takes no place.
    """

    max_concurrent_per_principal: Annotated[
        CountOrZero,
        doc(
            "Responses one principal may have in the making at once; further ones get 429. 0 for no limit.",
            live=True,
            per_process=True,
        ),
    ] = 0
    requests_per_minute_per_principal: Annotated[
        CountOrZero,
        doc(
            "Creates of one principal in a minute, in one burst or evenly; further ones get 429 and are told when to "
            "come back. 0 for no limit.",
            live=True,
            per_process=True,
        ),
    ] = 0
    requests_per_minute: Annotated[
        CountOrZero, doc("The same for all principals together. 0 for no limit.", live=True, per_process=True)
    ] = 0
    max_principals: Annotated[
        Count,
        doc(
            "Principals whose counts are remembered; beyond that the one that has been away for longest begins anew.",
            live=True,
        ),
    ] = 10_000
