"""The keys of conversations."""

from typing import Annotated

from gateway.config.kinds import Count, Size, doc
from gateway.config.schema.section import Section
from gateway.config.units import MIB


class ConversationsConfig(Section, frozen=True, kw_only=True):
    """How much one conversation may hold. The output of a response that was begun below these bounds may pass them."""

    max_items: Annotated[
        Count, doc("Items one conversation may hold; beyond that what adds to it gets 400.", live=True, le=1_000_000)
    ] = 10_000
    max_bytes: Annotated[
        Size,
        doc("Items one conversation may hold, as serialized; beyond that what adds to it gets 400.", live=True),
    ] = 64 * MIB
