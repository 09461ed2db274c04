"""How what several processes tell of themselves becomes one.

A document holds numbers that add up: counts, levels and buckets. So those of several processes make one of the same
form, and that of a single process is the sum of one.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import Struct, structs

from gateway.telemetry.distribution import Distribution, add_up
from gateway.telemetry.principals import add_up_principals
from gateway.telemetry.status import (
    BREAKERS,
    LAST_ERRORS,
    LastError,
    LimitUse,
    Outcome,
    Status,
    StorageStatus,
    UpstreamStatus,
    Use,
)

_Part = TypeVar("_Part", bound=Struct)


def merge(documents: Sequence[Status]) -> Status:
    """Return what several processes tell as if one told it; the order does not matter.

    Args:
        documents: one for each process, of the same version and configuration; at least one.

    Raises:
        ValueError: there is no document, or values were counted in different buckets.
    """
    if not documents:
        raise ValueError("there is no document to merge")
    newest = max(documents, key=attrgetter("time", "version", "python", "auth"))
    return _fold(
        documents,
        newest,
        started=min(one.started for one in documents),
        draining=any(one.draining for one in documents),
        processes=tuple(sorted((one for document in documents for one in document.processes), key=structs.astuple)),
        upstreams=_merge_alike(documents, "upstreams", "name", _merge_upstreams),
        storage=_merge_storage([one.storage for one in documents]),
        clients=_fold([one.clients for one in documents], newest.clients),
        lanes=_fold([one.lanes for one in documents], newest.lanes),
        background=_fold([one.background for one in documents], newest.background),
        tools=_fold([one.tools for one in documents], newest.tools),
        agents=_fold([one.agents for one in documents], newest.agents),
        limits=_merge_alike(documents, "limits", "key", _merge_limits),
        rejections=_merge_alike(documents, "rejections", "key", _add_counts),
        tokens=_merge_alike(documents, "tokens", "model", _add_counts),
        principals=add_up_principals(one for document in documents for one in document.principals),
        responses=_merge_outcomes(one for document in documents for one in document.responses),
        latency=_fold([one.latency for one in documents], newest.latency),
        last_errors=select_newest(one for document in documents for one in document.last_errors),
    )


def select_newest(errors: Iterable[LastError]) -> tuple[LastError, ...]:
    """Return the newest failures, newest first, at most `LAST_ERRORS`."""
    return tuple(sorted(errors, key=_rank, reverse=True)[:LAST_ERRORS])


def _rank(error: LastError) -> tuple[Any, ...]:
    return (error.time, error.request_id, error.response_id or "", error.route, error.status, error.code)


def _merge_alike(
    documents: Sequence[Status], field: str, key: str, merge_parts: Callable[[list[Any]], _Part]
) -> tuple[_Part, ...]:
    """Merge those entries of one field that have the same key."""
    alike: defaultdict[str, list[_Part]] = defaultdict(list)
    for document in documents:
        for part in getattr(document, field):
            alike[getattr(part, key)].append(part)
    return tuple(merge_parts(alike[name]) for name in sorted(alike))


def _merge_upstreams(servers: list[UpstreamStatus]) -> UpstreamStatus:
    worst = min(servers, key=lambda one: (one.healthy, -one.checked_at, one.detail, one.dialect, one.url))
    return _fold(servers, worst, breaker=max((one.breaker for one in servers), key=BREAKERS.index))


def _merge_storage(stores: list[StorageStatus]) -> StorageStatus:
    worst = min(stores, key=attrgetter("healthy", "detail", "database"))
    return _fold(stores, worst, failures=sum(one.failures for one in stores))


def _merge_limits(limits: list[LimitUse]) -> LimitUse:
    return _fold(
        limits, limits[0], limit=max(one.limit for one in limits), breaches=sum(one.breaches for one in limits)
    )


def _merge_outcomes(outcomes: Iterable[Outcome]) -> tuple[Outcome, ...]:
    counts: Counter[tuple[str, str]] = Counter()
    for outcome in outcomes:
        counts[outcome.transport, outcome.status] += outcome.count
    return tuple(
        Outcome(transport=transport, status=status, count=count)
        for (transport, status), count in sorted(counts.items())
    )


def _add_counts(parts: list[_Part]) -> _Part:
    """Return one part with the sum of each number of all."""
    numbers = (name for name in parts[0].__struct_fields__ if isinstance(getattr(parts[0], name), int))
    return structs.replace(parts[0], **{name: sum(getattr(part, name) for part in parts) for name in numbers})


def _fold(parts: Sequence[_Part], base: _Part, **known: Any) -> _Part:
    """Return the base with the sum of all parts in every use and distribution, and with what is known already."""
    for name in base.__struct_fields__:
        values = [getattr(part, name) for part in parts]
        if isinstance(values[0], Use):
            known[name] = _sum_uses(values)
        elif isinstance(values[0], Distribution):
            known[name] = add_up(values)
    return structs.replace(base, **known)


def _sum_uses(uses: Sequence[Use]) -> Use:
    limits = [one.limit for one in uses if one.limit is not None]
    return Use(
        now=sum(one.now for one in uses),
        high=sum(one.high for one in uses),
        limit=sum(limits) if limits else None,
    )
