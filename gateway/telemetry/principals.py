"""Which principals use most, as a status tells it."""

from collections.abc import Iterable
from typing import Final

from msgspec import Struct, structs

LARGEST: Final = 20
"""How many principals a document tells."""


class PrincipalTokens(Struct, frozen=True, kw_only=True):
    """Tokens of one principal, as the inference servers count them.

    Attributes:
        principal: whom responses belong to.
        responses: those whose tokens the inference server told.
        input: read.
        cached: those of them that were cached.
        output: made.
        reasoning: those of them that were reasoning.
    """

    principal: str
    responses: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    reasoning: int = 0


def add_up_principals(parts: Iterable[PrincipalTokens]) -> tuple[PrincipalTokens, ...]:
    """Return the sums of each principal, those with the most tokens first, at most `LARGEST`."""
    sums: dict[str, PrincipalTokens] = {}
    for part in parts:
        before = sums.get(part.principal)
        sums[part.principal] = part if before is None else _add(before, part)
    return tuple(sorted(sums.values(), key=lambda one: (-one.input - one.output, one.principal))[:LARGEST])


def _add(one: PrincipalTokens, other: PrincipalTokens) -> PrincipalTokens:
    numbers = (name for name in one.__struct_fields__ if name != "principal")
    return structs.replace(one, **{name: getattr(one, name) + getattr(other, name) for name in numbers})
