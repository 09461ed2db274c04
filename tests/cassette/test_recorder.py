import errno
import os
import resource
import signal
import subprocess
import sys

import pytest

from gateway.cassette.bounds import Bounds
from gateway.cassette.format import Head, load_cassette, read_cassette
from gateway.cassette.recorder import BoundReached, FileSink, MemorySink, Recorder, RecordingFailed
from gateway.cassette.redact import Redactor


def start(sink, bounds=None, clock=lambda: 0) -> Recorder:
    recorder = Recorder(sink, Redactor(["sk-live"]), bounds or Bounds(), clock)
    recorder.begin(Head(model="m"))
    recorder.start_session()
    return recorder


def test_times_never_stand_still_and_both_directions_share_the_numbers():
    sink = MemorySink()
    recorder = start(sink)
    for direction in ("c2s", "s2c", "c2s"):
        recorder.note_frame(0, direction, 1, b"{}", fin=True)
    recorder.note_barrier(0, "summary", "held")
    recorder.finish()
    cassette = read_cassette(iter(sink.lines))
    assert [(record.n, record.t) for record in cassette.records[1:4]] == [(0, 0), (1, 1), (2, 2)]
    assert cassette.is_intact
    assert cassette.records[-1].counts == {
        "sessions": 1,
        "frames": 3,
        "http": 0,
        "errors": 0,
        "bytes": 6,
        "redacted": 0,
    }


def test_each_record_is_in_the_file_before_the_next_thing_happens(tmp_path):
    path = tmp_path / "new" / "r.jsonl"
    sink = FileSink(path)
    recorder = start(sink)
    for count in range(2, 5):
        recorder.note_frame(0, "s2c", 9, b"\xff\x00", fin=True)
        assert len(load_cassette(path).records) == count
    assert load_cassette(path).records[-1].payload == b"\xff\x00"
    sink.close()
    with pytest.raises(RecordingFailed, match="--force"):
        FileSink(path)
    FileSink(path, replace=True).close()
    assert path.read_bytes() == b""


@pytest.mark.parametrize(("bounds", "option"), [(Bounds(max_frames=2), "frames"), (Bounds(max_bytes=5), "bytes")])
def test_a_recording_is_bounded(bounds, option):
    recorder = start(MemorySink(), bounds)
    recorder.note_frame(0, "c2s", 1, b"12", fin=True)
    recorder.note_frame(0, "c2s", 1, b"34", fin=True)
    with pytest.raises(BoundReached, match=f"--max-{option}"):
        recorder.note_frame(0, "c2s", 1, b"56", fin=True)
    recorder.note_failure(0, "recorder", "BoundReached", "sk-live")
    recorder.finish()
    assert recorder.counts["redacted"] == 1


def test_a_full_disk_ends_the_recording_at_a_whole_line(tmp_path):
    path = tmp_path / "r.jsonl"
    sink = FileSink(path)
    recorder = start(sink)
    recorder.note_frame(0, "c2s", 1, b"kept", fin=True)
    length = path.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    taken = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (length + 10, before[1]))
    try:
        with pytest.raises(RecordingFailed, match=os.strerror(errno.EFBIG)):
            recorder.note_frame(0, "c2s", 1, b"lost", fin=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, taken)
    # There is room again, but a gap would be a lie.
    with pytest.raises(RecordingFailed):
        recorder.finish()
    sink.close()
    assert path.stat().st_size == length
    assert load_cassette(path).records[-1].text == "kept"


KILLED = """
import os, signal, sys
from pathlib import Path
from gateway.cassette.bounds import Bounds
from gateway.cassette.format import Head
from gateway.cassette.recorder import FileSink, Recorder
from gateway.cassette.redact import Redactor
recorder = Recorder(FileSink(Path(sys.argv[1])), Redactor(), Bounds())
recorder.begin(Head())
recorder.start_session()
for _ in range(3):
    recorder.note_frame(0, "s2c", 1, b"{}", fin=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.agents(137)
def test_a_killed_recording_is_whole_but_for_its_end(tmp_path):
    path = tmp_path / "r.jsonl"
    ended = subprocess.run([sys.executable, "-c", KILLED, str(path)], timeout=30, check=False)
    assert ended.returncode == -signal.SIGKILL
    cassette = load_cassette(path)
    assert len(cassette.records) == 4
    assert not cassette.is_complete
