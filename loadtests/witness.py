"""What a caller is told of one turn: whether it comes in order, and when."""

import time
from collections.abc import Sequence
from typing import Any

import msgspec
from measure import FAILED, INCOMPLETE, OK, Turn
from msgspec import Struct

_ENDS = {"response.completed": OK, "response.incomplete": INCOMPLETE, "response.failed": FAILED, "error": FAILED}
_SHOWN_BYTES = 300


class Part(Struct):
    """A part of a message."""

    type: str = ""
    text: str = ""


class Item(Struct):
    """An output item."""

    type: str = ""
    content: list[Part] | None = None


class Usage(Struct):
    """What an inference took."""

    output_tokens: int = 0


class Response(Struct):
    """What of a response is looked at."""

    id: str = ""
    status: str | None = None
    output: list[Item] = []
    usage: Usage | None = None

    @property
    def text(self) -> str:
        """All that its messages say."""
        parts = (part for item in self.output if item.type == "message" for part in item.content or ())
        return "".join(part.text for part in parts if part.type == "output_text")


class Event(Struct):
    """What of an event is looked at."""

    type: str
    sequence_number: int | None = None
    stream_id: str | None = None
    delta: str = ""
    response: Response | None = None


decode_event = msgspec.json.Decoder(Event).decode
decode_response = msgspec.json.Decoder(Response).decode


class Witness:
    """Follows one turn from its request to its end. Of several faults the first counts.

    Args:
        kind: of the user who asks.
        lane: the `stream_id` of all events; None is the default lane, or HTTP.
        expected: texts that the answer must hold.

    Attributes:
        ended: whether the terminal event has come.
        response: the final object, once there is one.
    """

    def __init__(self, kind: str, lane: str | None = None, expected: Sequence[str] = ()) -> None:
        self.lane = lane
        self.ended = False
        self.response = Response()
        self._expected = expected
        self._next_number = 0
        self._text: list[str] = []
        self._last_token = 0
        self._turn = Turn(kind=kind, began=time.time_ns() // 1000)
        self._began = time.perf_counter_ns()

    def take(self, event: Event, raw: bytes, now: int) -> None:
        """Note one event.

        Args:
            event: the event.
            raw: its JSON, for what is reported of a fault.
            now: when it came, of `time.perf_counter_ns`.
        """
        if self.ended:
            self.blame("an event after the end", event.type)
            return
        if event.stream_id != self.lane:
            self.blame("wrong stream_id", f"{event.stream_id} instead of {self.lane} in {event.type}")
        self._count(event)
        if event.type.endswith(".delta"):
            self._note_token(event, now)
        elif event.type == "response.created":
            self._turn.ack = self._since(now)
        elif event.type in _ENDS:
            self._end(event, raw, now)

    def take_document(self, body: bytes, now: int) -> None:
        """Note a whole answer in one JSON document."""
        self._turn.e2e = self._since(now)
        self.ended = True
        try:
            self.response = decode_response(body)
        except msgspec.DecodeError as error:
            self.blame("unreadable answer", f"{error}: {_show(body)}")
            return
        self._judge(OK if self.response.status == "completed" else str(self.response.status), body)

    def blame(self, fault: str, detail: str = "") -> None:
        """Let the turn have failed."""
        if self._turn.outcome != FAILED:
            self._turn.outcome, self._turn.fault, self._turn.detail = FAILED, fault, detail[:_SHOWN_BYTES]

    @property
    def begun(self) -> bool:
        """Whether any event has come."""
        return self._next_number > 0

    def expired(self, seconds: float) -> bool:
        """Tell whether the turn takes longer than this."""
        return time.perf_counter_ns() - self._began > seconds * 1e9

    def finish(self) -> Turn:
        """Return the turn; nothing more comes of it."""
        if not self.ended:
            self._turn.e2e = self._since(time.perf_counter_ns())
            self.blame("no terminal event")
        self._turn.ended = self._turn.began + self._turn.e2e
        return self._turn

    def _count(self, event: Event) -> None:
        # An error about a request that never became a response has no number.
        if event.sequence_number is None and event.type == "error" and self._next_number == 0:
            return
        if event.sequence_number != self._next_number:
            self.blame("sequence gap", f"{event.type} has {event.sequence_number} instead of {self._next_number}")
        self._next_number = (event.sequence_number or 0) + 1

    def _note_token(self, event: Event, now: int) -> None:
        if self._turn.ttft is None:
            self._turn.ttft = self._since(now)
        else:
            self._turn.gaps.append((now - self._last_token) // 1000)
        self._last_token = now
        self._turn.tokens += 1
        if event.type == "response.output_text.delta":
            self._text.append(event.delta)

    def _end(self, event: Event, raw: bytes, now: int) -> None:
        self._turn.e2e = self._since(now)
        self.ended = True
        if event.response is not None:
            self.response = event.response
        # vLLM calls the end `response.completed` whatever the status is.
        incomplete = self.response.status == INCOMPLETE
        self._judge(INCOMPLETE if incomplete else _ENDS[event.type], raw)
        if self._turn.outcome != FAILED and "".join(self._text) != self.response.text:
            self.blame("text mismatch", f"the deltas say {_clip(''.join(self._text))}, the end {self._quote()}")

    def _judge(self, outcome: Any, raw: bytes) -> None:
        if outcome not in {OK, INCOMPLETE}:
            self.blame("the response failed", _show(raw))
            return
        if self._turn.outcome != FAILED:
            self._turn.outcome = outcome
        if self.response.usage is not None:
            self._turn.tokens = self.response.usage.output_tokens
        missing = [text for text in self._expected if text not in self.response.text]
        if missing and outcome == OK:
            self.blame("text mismatch", f"{_clip(missing[0])} is not in {self._quote()}")

    def _quote(self) -> str:
        return _clip(self.response.text)

    def _since(self, now: int) -> int:
        return (now - self._began) // 1000


def _show(raw: bytes) -> str:
    return raw[:_SHOWN_BYTES].decode(errors="replace")


def _clip(text: str) -> str:
    return repr(text if len(text) <= 100 else f"{text[:100]}…")
