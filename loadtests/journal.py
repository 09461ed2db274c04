"""Where turns go: from each process that asks to the one that reports, and there into a file."""

import time
from collections import deque
from pathlib import Path
from typing import BinaryIO

import msgspec
from measure import FAILED, Course, Turn, decode_turns, encode_turns, select

TURNS_FILE = "turns.jsonl"
COURSE_FILE = "course.json"


def read_clock() -> int:
    """Return the wall clock in microseconds."""
    return time.time_ns() // 1000


class Batch(msgspec.Struct, array_like=True):
    """What one process has measured since its last batch.

    Attributes:
        process: its name.
        lines: its turns, a line of JSON each.
        cpu: seconds of CPU that it used since it began.
        seconds: time since it began.
        last: whether nothing follows.
    """

    process: str
    lines: bytes
    cpu: float
    seconds: float
    last: bool = False


class Recorder:
    """Keeps the turns of one process until they are taken, which is every second.

    Args:
        process: its name.
    """

    def __init__(self, process: str) -> None:
        self._process = process
        self._turns: list[Turn] = []
        self.begin()

    def begin(self) -> None:
        """Forget everything: a run begins."""
        self._turns.clear()
        self._cpu, self._began = time.process_time(), time.monotonic()

    def add(self, turn: Turn) -> None:
        """Keep a turn that has ended."""
        turn.process = self._process
        self._turns.append(turn)

    def take(self, *, last: bool = False) -> Batch:
        """Return what was kept, and forget it."""
        turns, self._turns = self._turns, []
        used, passed = time.process_time() - self._cpu, time.monotonic() - self._began
        return Batch(self._process, encode_turns(turns), used, passed, last)


class Journal:
    """Writes the turns of all processes into a file and remembers the latest.

    Args:
        folder: where the file goes; it is made.
        memory: seconds for which turns are remembered.

    Attributes:
        course: how the run went so far.
        counts: turns, and turns that failed.
        finished: processes that have sent their last batch.
    """

    def __init__(self, folder: Path, memory: float) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._memory = round(memory * 1e6)
        self._recent: deque[Turn] = deque()
        self._file: BinaryIO = (folder / TURNS_FILE).open("wb")
        self.course = Course(began=read_clock())
        self.counts = {"turns": 0, FAILED: 0}
        self.finished: set[str] = set()

    def write(self, batch: Batch) -> None:
        """Write a batch down."""
        self._file.write(batch.lines)
        self.course.cpu[batch.process] = (batch.cpu, batch.seconds)
        turns = decode_turns(batch.lines)
        self._recent += turns
        forgotten = read_clock() - self._memory
        while self._recent and self._recent[0].ended < forgotten:
            self._recent.popleft()
        self.counts["turns"] += len(turns)
        self.counts[FAILED] += sum(turn.outcome == FAILED for turn in turns)
        if batch.last:
            self.finished.add(batch.process)

    def look_back(self, begin: float, end: float) -> list[Turn]:
        """Return the remembered turns that ended between two moments, in seconds since the begin of the run."""
        return select(self._recent, self.course.began + begin * 1e6, self.course.began + end * 1e6)

    def close(self) -> None:
        """Write down how the run went."""
        self._file.close()
        if not self.course.ended:
            self.course.ended = read_clock()
        (self._folder / COURSE_FILE).write_bytes(msgspec.json.encode(self.course))


def read_course(folder: Path) -> Course:
    """Return how a run went."""
    return msgspec.json.decode((folder / COURSE_FILE).read_bytes(), type=Course)
