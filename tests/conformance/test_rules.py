"""The judge itself on trial: it passes good streams and names the broken promise of every bad one."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from conformance import samples
from conformance.rules import RULES, Judge, check_stream
from conformance.samples import call_item, encode, full_stream, renumber, stream, text_item
from conformance.verdict import judge_response, judge_stream

Events = list[dict[str, Any]]
# where the events of `full_stream` are
CREATED, IN_PROGRESS, THOUGHT = 0, 1, 8
ADDED, PART_ADDED, DELTA, TEXT_DONE, PART_DONE, DONE = 9, 10, 11, 14, 15, 16
CALL_ADDED, ARGUMENTS_DONE, CALL_DONE, TERMINAL = 17, 20, 21, 22

GOOD = {
    "everything": full_stream(),
    "empty": stream(),
    "refusal": stream(text_item("refusal", 0, ["I ", "will not."])),
    "incomplete": stream(text_item("message", 0, ["cut o"], status="incomplete"), status="incomplete"),
    "failed with a closed item": stream(text_item("message", 0, ["a"]), status="failed"),
    "failed with an open item": stream(
        text_item("message", 0, ["so ", "far"])[:4],
        status="failed",
        output=[
            {**text_item("message", 0, ["so ", "far"], status="incomplete")[-1]["item"]},
        ],
    ),
    "failed in diagnostic form": stream(text_item("message", 0, ["a"]), status="failed", output=[]),
}


@pytest.mark.parametrize("name", GOOD)
def test_good_streams_break_nothing(name: str) -> None:
    assert judge_stream(encode(GOOD[name])) == []


def test_comments_between_events_are_welcome() -> None:
    raw = encode(full_stream()).replace(b"event: response.completed", b": ping\n\nevent: response.completed")
    assert judge_stream(raw) == []


def drop(at: int) -> Callable[[Events], Events]:
    return lambda events: renumber(events[:at] + events[at + 1 :])


def repeat(at: int) -> Callable[[Events], Events]:
    return lambda events: renumber(events[: at + 1] + events[at:])


def change(at: int, *path: str | int, to: Any) -> Callable[[Events], Events]:
    def changed(events: Events) -> Events:
        events = renumber(events)
        target: Any = events[at]
        for step in path[:-1]:
            target = target[step]
        target[path[-1]] = to
        return events

    return changed


def incomplete_first(events: Events) -> Events:
    events = renumber(events)
    events[THOUGHT]["item"]["status"] = "incomplete"
    events[TERMINAL]["response"]["output"][0]["status"] = "incomplete"
    return events


def late_delta(events: Events) -> Events:
    return renumber([*events[:PART_DONE], events[DELTA], *events[PART_DONE:]])


def nested(events: Events) -> Events:
    """The call is added before the message is done."""
    return renumber([*events[:DONE], events[CALL_ADDED], events[DONE], *events[CALL_ADDED + 1 :]])


def rename(events: Events, prefix: str, to: str) -> Events:
    raw = samples.encode(events).replace(f"{prefix}{samples.HEX}".encode(), to.encode())
    return renumber([json.loads(line[6:]) for line in raw.split(b"\n") if line.startswith(b"data: {")])


def shift(events: Events) -> Events:
    return renumber([{**event, "output_index": 5} if event.get("output_index") == 2 else event for event in events])


BAD: list[tuple[str, str, Callable[[Events], Events]]] = [
    ("sequence", "a gap", change(5, "sequence_number", to=99)),
    ("sequence", "a null", change(5, "sequence_number", to=None)),
    ("created first", "no created", drop(CREATED)),
    ("created first", "no in_progress", drop(IN_PROGRESS)),
    ("opening snapshot", "created with output", change(CREATED, "response", "output", to=[{}])),
    ("one terminal", "no terminal", drop(TERMINAL)),
    ("one terminal", "two terminals", repeat(TERMINAL)),
    ("terminal status", "completed with status incomplete", change(TERMINAL, "response", "status", to="incomplete")),
    ("response identity", "another id at the end", change(TERMINAL, "response", "id", to="resp_" + "f" * 32)),
    ("created_at", "another time at the end", change(TERMINAL, "response", "created_at", to=1790000009)),
    ("own ids", "the engine's response id", lambda events: rename(events, "resp_", "resp_engine")),
    ("own ids", "the engine's item id", lambda events: rename(events, "msg_", "msg_fixture")),
    ("output index", "a gap", shift),
    ("item added first", "no added", lambda events: renumber([*events[:ADDED], *events[PART_ADDED:]])),
    (
        "item added first",
        "an event after done",
        lambda events: renumber([*events[:CALL_ADDED], events[DELTA], *events[CALL_ADDED:]]),
    ),
    ("item added first", "done twice", repeat(DONE)),
    ("item identity", "another item_id in a delta", change(DELTA, "item_id", to="msg_" + "f" * 32)),
    ("item identity", "another id in done", change(DONE, "item", "id", to="msg_" + "f" * 32)),
    ("item identity", "another call_id in done", change(CALL_DONE, "item", "call_id", to="call_2")),
    ("opening item", "added as completed", change(ADDED, "item", "status", to="completed")),
    ("opening item", "arguments in added", change(CALL_ADDED, "item", "arguments", to="{}")),
    ("opening item", "text in the added part", change(PART_ADDED, "part", "text", to="Gr")),
    ("one item at a time", "two open", nested),
    ("item closed", "an item left open", drop(CALL_DONE)),
    ("item status", "done as in_progress", change(DONE, "item", "status", to="in_progress")),
    ("item status", "done without a status", change(DONE, "item", "status", to=None)),
    ("part added first", "no part.added", drop(PART_ADDED)),
    ("part added first", "part added twice", repeat(PART_ADDED)),
    ("part added first", "part done twice", repeat(PART_DONE)),
    ("part added first", "a delta of another kind", change(DELTA, "type", to="response.refusal.delta")),
    ("part closed", "no text done", drop(TEXT_DONE)),
    ("part closed", "no part done", drop(PART_DONE)),
    ("part closed", "no arguments done", drop(ARGUMENTS_DONE)),
    ("text", "a lost delta", drop(DELTA)),
    ("text", "another done text", change(TEXT_DONE, "text", to="Gruesse")),
    ("text", "another part text", change(PART_DONE, "part", "text", to="Gruesse")),
    ("text", "another item text", change(DONE, "item", "content", 0, "text", to="Gruesse")),
    ("text", "other arguments", change(ARGUMENTS_DONE, "arguments", to="{}")),
    ("text", "other arguments in the item", change(CALL_DONE, "item", "arguments", to="{}")),
    ("text", "a delta after done", late_delta),
    ("logprobs", "none on a delta", change(DELTA, "logprobs", to=None)),
    ("logprobs", "none on done", change(TEXT_DONE, "logprobs", to=None)),
    ("final output", "a lost item", change(TERMINAL, "response", "output", to=[])),
    ("final output", "another item id", change(TERMINAL, "response", "output", 1, "id", to="msg_" + "f" * 32)),
    ("incomplete last", "incomplete in the middle", incomplete_first),
]


@pytest.mark.parametrize(("rule", "name", "break_it"), BAD, ids=[f"{rule}: {name}" for rule, name, _ in BAD])
def test_every_broken_promise_is_named(rule: str, name: str, break_it: Callable[[Events], Events]) -> None:
    found = check_stream(encode(break_it(full_stream())))
    assert rule in {violation.rule for violation in found}, found


BAD_FRAMES: list[tuple[str, str, Callable[[bytes], bytes]]] = [
    (
        "framing",
        "event and type differ",
        lambda raw: raw.replace(b"event: response.created", b"event: response.queued"),
    ),
    ("framing", "no event line", lambda raw: raw.replace(b"event: response.created\n", b"")),
    ("framing", "two data lines", lambda raw: raw.replace(b'data: {"type": "response.created"', b"data: \ndata: {", 1)),
    ("framing", "an id line", lambda raw: b"id: 1\n" + raw),
    ("framing", "not JSON", lambda raw: raw.replace(b'{"type": "response.in_progress"', b"{type", 1)),
    ("framing", "CRLF", lambda raw: raw.replace(b"\n", b"\r\n")),
    ("framing", "no blank line at the end", lambda raw: raw[:-1]),
    ("done marker", "missing", lambda raw: raw.replace(b"data: [DONE]\n\n", b"")),
    ("done marker", "twice", lambda raw: raw + b"data: [DONE]\n\n"),
    ("done marker", "before the terminal", lambda raw: b"data: [DONE]\n\n" + raw.replace(b"data: [DONE]\n\n", b"")),
]


@pytest.mark.parametrize(
    ("rule", "name", "break_it"), BAD_FRAMES, ids=[f"{rule}: {name}" for rule, name, _ in BAD_FRAMES]
)
def test_every_broken_frame_is_named(rule: str, name: str, break_it: Callable[[bytes], bytes]) -> None:
    assert rule in {violation.rule for violation in check_stream(break_it(encode(full_stream())))}


def test_every_rule_has_a_stream_that_breaks_it() -> None:
    assert {rule for rule, _, _ in [*BAD, *BAD_FRAMES]} == set(RULES)


def test_a_violation_says_where() -> None:
    (violation,) = check_stream(encode(change(DELTA, "logprobs", to=None)(full_stream())))
    assert violation.event == DELTA
    assert str(violation) == f"event {DELTA}: [logprobs] logprobs is None"


def test_a_failed_response_must_show_the_text_so_far() -> None:
    partial = text_item("message", 0, ["so ", "far"])
    lost = text_item("message", 0, ["so "], status="incomplete")[-1]["item"]
    found = check_stream(encode(stream(partial[:4], status="failed", output=[lost])))
    assert [violation.rule for violation in found] == ["final output"]


def test_an_error_event_ends_a_stream_only_where_it_may() -> None:
    events = renumber([*full_stream()[:-1], {"type": "error", "code": "x", "message": "too large", "param": None}])
    assert "one terminal" in {violation.rule for violation in check_stream(encode(events))}
    assert check_stream(encode(events), Judge(error_terminal=True)) == []


def test_several_agents_may_have_items_open_together() -> None:
    message, call = text_item("message", 0, ["a"]), call_item(1, ["{}"])
    events = encode(stream([*message[:2], *call, *message[2:]], output=[message[-1]["item"], call[-1]["item"]]))
    assert check_stream(events, Judge(max_open_items=2)) == []
    assert {violation.rule for violation in check_stream(events)} == {"one item at a time"}


def test_response_objects_are_judged_alone() -> None:
    good = full_stream()[-1]["response"]
    assert judge_response(good) == []
    assert judge_response({**good, "id": "resp_engine"}) == ["id 'resp_engine' is not resp_ and 32 hex digits"]


HOLOGRAM = {"type": "hologram", "data": 1}


def hologram(done: dict[str, Any] | None, shown: dict[str, Any]) -> bytes:
    """A message with one part of a type this judge has never heard of."""
    item = {"id": f"msg_{samples.HEX}", "type": "message", "role": "assistant", "content": []}
    place = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    events = [
        {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress"}},
        {"type": "response.content_part.added", **place, "part": {"type": "hologram", "text": "free to be here"}},
        *([{"type": "response.content_part.done", **place, "part": done}] if done else []),
        {
            "type": "response.output_item.done",
            "output_index": 0,
            "item": {**item, "status": "completed", "content": [shown]},
        },
    ]
    return encode(stream(events))


def test_parts_without_texts_come_whole() -> None:
    assert check_stream(hologram(HOLOGRAM, HOLOGRAM)) == []
    assert [one.rule for one in check_stream(hologram(HOLOGRAM, {**HOLOGRAM, "data": 2}))] == ["text"]
    assert "part closed" in [one.rule for one in check_stream(hologram(None, HOLOGRAM))]
