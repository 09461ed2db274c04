"""Each assertion is met by a provider that does right, and finds the one that does not."""

import json

import msgspec
import pytest
from cassette.provider import Provider

from gateway.cassette.bounds import Bounds
from gateway.cassette.checks import check_sessions
from gateway.cassette.format import FORMAT, Cassette, Close, Frame, Head
from gateway.cassette.transcript import read_sessions


def check(cassette: Cassette, scenario: str | None = None) -> dict[str, list[str]]:
    findings = check_sessions(read_sessions(cassette.records), scenario)
    return {finding.name: list(finding.problems) for finding in findings if finding.problems}


def change(kind: str, **fields):
    """Return how a provider goes wrong: it changes the first event of a type."""
    seen = []

    def mangle(event):
        if event["type"] != kind or seen:
            return event
        seen.append(event)
        return {**event, **fields}

    return mangle


ADDED, DONE = "response.output_item.added", "response.output_item.done"
ROOT = {"agent_name": "/root"}
CALL = {"type": "multi_agent_call", "id": "x", "call_id": "call_x", "action": "wait_agent", "agent": ROOT}


@pytest.mark.agents(135)
@pytest.mark.parametrize(
    ("mangle", "name", "told"),
    [
        (change("response.in_progress", sequence_number=7), "A1", "event 1 has the number 7"),
        (change("response.in_progress", type="response.created"), "A2", ""),
        (change(ADDED, output_index=5), "A3", "which is not open"),
        (change("response.content_part.done", content_index=3), "A3", "without its beginning"),
        (change(DONE, item={"type": "other", "id": "y", "agent": ROOT}), "A4", "item 0 of the output"),
        (change(ADDED, agent=None), "A5", "names no agent"),
        (change("response.inject.created", agent=ROOT), "A5", "names an agent"),
        (change("response.inject.created", type="response.note"), "A6", "has no outcome"),
        (change(DONE, item=CALL), "A8", "wait_agent call_x has 0 outputs"),
    ],
)
async def test_each_assertion_finds_what_is_wrong(mangle, name, told, record):
    _, cassette = await record("R1", Provider(mangle=mangle), Bounds(step_seconds=0.5))
    found = check(cassette, "R1")
    assert told in found[name][0]


@pytest.mark.parametrize(
    ("fields", "name", "told"),
    [
        ({"input": []}, "A6", "came back changed"),
        ({"type": "response.inject.created"}, "A7", "accepted after the end"),
    ],
)
async def test_late_outcomes(fields, name, told, record):
    provider = Provider(ends_after=0, mangle=change("response.inject.failed", **fields))
    _, cassette = await record("R1", provider)
    assert told in check(cassette, "R1")[name][0]


def rewrite(cassette: Cassette, edit) -> Cassette:
    records = [
        msgspec.structs.replace(record, text=json.dumps(edit(json.loads(record.text))))
        if isinstance(record, Frame) and record.op == 1
        else record
        for record in cassette.records
    ]
    return Cassette(records)


async def test_a_refusal_for_the_end_before_the_end(record):
    _, cassette = await record("R7")

    def edit(event):
        if event["type"] == "response.inject.failed":
            event["error"]["code"] = "response_already_completed"
        return event

    assert "before the end" in check(rewrite(cassette, edit), "R7")["A7"][0]


async def test_an_action_that_is_asked_of_the_client(record):
    _, cassette = await record("R1")

    def edit(event):
        item = event.get("item") or {}
        if item.get("name") == "get_proposal":
            item["name"] = "spawn_agent"
        return event

    assert "the client is asked" in check(rewrite(cassette, edit), "R1")["A9"][0]


async def test_an_outcome_twice_and_one_that_came_out_of_nothing(record):
    _, cassette = await record("R8")
    doubled = Cassette([*cassette.records[:4], *cassette.records[3:]])
    assert "that nothing was sent for" in check(doubled, "R8")["A6"][0]


async def test_an_inject_before_its_call(record):
    _, cassette = await record("R1")
    frames = [at for at, record in enumerate(cassette.records) if isinstance(record, Frame)]
    first = next(at for at in frames if "response.inject" in (cassette.records[at].text or ""))
    for place, told in ((frames[2], "too early"), (frames[0], "before it was created")):
        records = list(cassette.records)
        records.insert(place, records.pop(first))
        assert told in check(Cassette(records), "R1")["A11"][0]


@pytest.mark.parametrize(
    ("close", "scenario", "told"),
    [
        (None, "R1", "has no end"),
        (Close(s=0, t=1, by="server", code=1011, clean=True), "R1", "ended by the server, code 1011"),
        (Close(s=0, t=1, by="transport", clean=False), "R1", "not clean"),
        (Close(s=0, t=1, by="client", code=1000, clean=True), "R9", "instead of the server"),
        (Close(s=0, t=1, by="client", code=1000, clean=True), "R13", "was not left"),
    ],
)
def test_ends(close, scenario, told):
    frame = Frame(s=0, n=0, t=0, dir="c2s", op=1, fin=True, text="{}")
    records = [Head(format=FORMAT), frame, *([close] if close else [])]
    assert told in check(Cassette(records), scenario)["A10"][0]
