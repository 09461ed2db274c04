"""Whatever a server sends and however a file was changed, recordings are read and checked without a crash."""

import copy
import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gateway.cassette.checks import check_sessions
from gateway.cassette.comparison import compare_sessions
from gateway.cassette.conversion import read_yaml, write_lines, write_yaml
from gateway.cassette.format import FORMAT, Cassette, Frame, Head
from gateway.cassette.milestones import plan_session
from gateway.cassette.redact import Redactor
from gateway.cassette.transcript import read_sessions

RECORDING = Path(__file__).parents[1] / "cassette/recordings/R1.jsonl"
FRAMES = [
    (record["dir"], json.loads(record["text"]))
    for record in map(json.loads, RECORDING.read_text().splitlines())
    if record["k"] == "frame" and record["op"] == 1
]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def find_places(value, path=()):
    """Yield the path of each member of a JSON value."""
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in members:
        yield (*path, name)
        yield from find_places(inner, (*path, name))


PLACES = [(at, path) for at, (_, event) in enumerate(FRAMES) for path in find_places(event)]


@given(st.lists(st.tuples(st.sampled_from(PLACES), VALUES), min_size=1, max_size=4))
def test_changed_recordings(changes):
    frames = copy.deepcopy(FRAMES)
    for (at, path), value in changes:
        target = frames[at][1]
        try:
            for name in path[:-1]:
                target = target[name]
            target[path[-1]] = value
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took the place away
    records = [
        Frame(s=0, n=at, t=at, dir=direction, op=1, fin=True, text=json.dumps(event))
        for at, (direction, event) in enumerate(frames)
    ]
    sessions = read_sessions([Head(format=FORMAT), *records])
    check_sessions(sessions, "R1")
    compare_sessions(sessions, read_sessions([Head(format=FORMAT), *records]), "texts")
    plan_session(sessions[0], {})


FRAME = st.builds(
    Frame,
    s=st.just(0),
    n=st.integers(0, 2**31),
    t=st.integers(0, 2**52),
    dir=st.sampled_from(["c2s", "s2c"]),
    op=st.sampled_from([0, 1, 2, 8, 9, 10]),
    fin=st.booleans(),
    text=st.none() | st.text(st.characters(codec="utf-8")),
    note=st.none() | st.text(st.characters(codec="utf-8"), max_size=5),
    redacted=st.integers(0, 3),
)


@given(st.lists(FRAME, max_size=4, unique_by=lambda frame: frame.t))
def test_yaml_keeps_everything(frames):
    frames = sorted(frames, key=lambda frame: frame.t)
    cassette = Cassette([Head(format=FORMAT, model="m"), *frames])
    assert write_lines(read_yaml(write_yaml(cassette))) == write_lines(cassette)


@given(st.text(), st.text(st.characters(codec="utf-8"), min_size=8, max_size=20))
def test_a_key_is_nowhere(text, key):
    shown, _ = Redactor([key]).redact_text(f"{text}{key}{text}")
    assert key not in shown or key in "***"
