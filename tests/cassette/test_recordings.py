"""The recordings of the project: whole, sound, without secrets, and good to be served."""

from pathlib import Path

import pytest

from gateway.cassette.bounds import Bounds
from gateway.cassette.checks import check_sessions
from gateway.cassette.conversion import read_yaml, write_lines, write_yaml
from gateway.cassette.format import load_cassette, read_cassette
from gateway.cassette.playback import Playback, serve_playback
from gateway.cassette.recorder import MemorySink
from gateway.cassette.replay import judge_replay, replay_cassette
from gateway.cassette.stage import Settings
from gateway.cassette.transcript import read_sessions

RECORDINGS = sorted((Path(__file__).parent / "recordings").glob("*.jsonl"))


def test_there_are_some():
    assert [path.stem for path in RECORDINGS] == ["R1", "R15"]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: path.stem)
async def test_recording(path):
    cassette = load_cassette(path)
    assert cassette.is_intact
    assert cassette.head.scenario == path.stem
    findings = check_sessions(read_sessions(cassette.records), path.stem)
    assert [problem for finding in findings for problem in finding.problems] == []
    assert write_lines(read_yaml(write_yaml(cassette))) == path.read_bytes()
    playback, sink = Playback(cassette), MemorySink()
    async with serve_playback(playback) as url:
        settings = Settings(url=url, bounds=Bounds(step_seconds=20, close_seconds=1))
        result = await replay_cassette(cassette, settings, sink)
    findings = judge_replay(cassette, read_cassette(iter(sink.lines)), result, "texts")
    assert [problem for finding in findings for problem in finding.problems] == []
    assert playback.problems == []
