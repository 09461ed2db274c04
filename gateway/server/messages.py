"""What a parent and its workers tell each other: a task at the start, then one JSON object per line, both ways."""

from typing import Literal

from msgspec import Raw, Struct

MESSAGE_LIMIT = 4 * 1024 * 1024
"""Bytes of the longest message; a report has some tens of thousands."""

Topic = Literal["metrics", "readiness", "status"]


class Task(Struct, frozen=True, kw_only=True):
    """What a worker is to do. It may hold secrets, so it is handed over through a pipe.

    Attributes:
        version: of the parent; both must be of the same.
        number: which worker it is, from 1.
        control: file descriptor of the connection to the parent.
        listener: file descriptor of the bound public socket.
        folder: where processes share their metrics.
        config: the configuration in effect, packed; what the sources say by now may need a restart.
        file: the configuration file to read at a reload, if one was named.
        overrides: `section.key=value` each, likewise.
        wait_upstream: seconds to wait for a healthy inference server first, or None not to wait.
    """

    version: str
    number: int
    control: int
    listener: int
    folder: str
    config: Raw
    file: str | None
    overrides: tuple[str, ...]
    wait_upstream: float | None


class Stop(Struct, frozen=True, tag=True):
    """Stop; may be said more than once.

    Attributes:
        urgency: how many signals the parent has seen: 1 drains, 2 cuts off, 3 skips the grace.
        reason: for the log.
    """

    urgency: int
    reason: str


class ReadAgain(Struct, frozen=True, tag=True):
    """Read the configuration again."""


class Ask(Struct, frozen=True, tag=True):
    """Answer a question.

    Attributes:
        number: comes back with the answer.
        about: what it is about. `metrics` brings those that are shared up to date.
    """

    number: int
    about: Topic


class Serving(Struct, frozen=True, tag=True):
    """The worker accepts connections."""


class Failed(Struct, frozen=True, tag=True):
    """The worker cannot start.

    Attributes:
        reason: why, and what to do.
    """

    reason: str


class Answer(Struct, frozen=True, tag=True):
    """The answer to a question.

    Attributes:
        number: as asked.
        body: JSON of what was asked for; None for `metrics`.
    """

    number: int
    body: Raw


Order = Stop | ReadAgain | Ask
Word = Serving | Failed | Answer
