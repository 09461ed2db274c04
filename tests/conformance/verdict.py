"""The whole judgement in one call: rules of the stream, field tables and the gateway's own description together."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from conformance.description import description
from conformance.rules import Judge, check_events, check_ids
from conformance.schema import Schema
from conformance.wire import take_apart


@cache
def schema() -> Schema:
    """The field tables, read once."""
    return Schema()


@cache
def beta_schema() -> Schema:
    """The field tables of the beta API, with those of a WebSocket's events."""
    return Schema(beta=True)


def judge_stream(stream: bytes, judge: Judge | None = None) -> list[str]:
    """Return every fault of one whole client stream."""
    events, broken = take_apart(stream)
    faults = [str(violation) for violation in [*broken, *check_events(events, judge)]]
    for event in events:
        found = [*schema().check_event(event.data), *description().check_event(event.data)]
        faults += [f"event {event.number}: {fault}" for fault in found]
    return faults


def judge_response(response: Mapping[str, Any]) -> list[str]:
    """Return every fault of one response object."""
    faults = [*schema().check_response(response), *description().check("Response", response)]
    return faults + check_ids(dict(response)) if isinstance(response.get("output"), list) else faults
