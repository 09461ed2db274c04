"""The growing texts inside an item: content parts and summaries; those of calls are in `call_parts`.

A part knows what it holds and how much of it the client has seen. `flush` returns the events for the difference, so a
part that was streamed, one that waited its turn and one that came as a finished snapshot take the same way out.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Protocol

from msgspec import to_builtins

from gateway.protocol import events, items
from gateway.protocol.citations import Sources
from gateway.protocol.events import Event
from gateway.protocol.ledger import VALUE_BYTES, charge


class Owner(Protocol):
    """The item a part belongs to, as the client knows it.

    Attributes:
        id: our item id.
        output_index: the item's index in the response, -1 until it is announced.
    """

    id: str
    output_index: int


class Part:
    """Base: accumulates text; subclasses word the events.

    Attributes:
        index: the client's index among its siblings.
        announced: its `added` event has been returned.
        settled: the text is final.
        closed: nothing of it will change any more.
        mirror: a twin that repeats this text in another form, or None.
        opening: the engine's object of the part when it was added, if that held anything; it speaks last.
        half: the first half of a surrogate pair, kept until its other half comes, else empty.
        annotations: of the text, where it can have any.
    """

    annotations: Sequence[Any] = ()

    __slots__ = (
        "_chunks", "_pending", "_said_done", "_said_text", "announced", "closed", "half", "index", "mirror", "opening",
        "settled",
    )  # fmt: skip

    def __init__(self, index: int) -> None:
        self.index = index
        self.announced = False
        self.settled = False
        self.closed = False
        self.mirror: Part | None = None
        self.opening: dict[str, Any] | None = None
        self.half = ""
        self._chunks: list[str] = []
        self._pending: list[str] = []
        self._said_text = False
        self._said_done = False

    @property
    def text(self) -> str:
        """Everything accumulated so far."""
        chunks = self._chunks
        if len(chunks) > 1:
            # The list stays the same: a flow goes on appending to it.
            chunks[:] = ["".join(chunks)]
        return chunks[0] if chunks else ""

    def push(self, text: str) -> None:
        """Append text the client has not seen."""
        self._chunks.append(text)
        self._pending.append(text)

    @property
    def flows(self) -> bool:
        """Whether the client has seen everything of this part, and a delta is all there is to tell."""
        return self.announced and not (self.settled or self._pending or self.half or self.opening or self.mirror)

    @property
    def append(self) -> Callable[[str], None]:
        """What appends text that the client is told of by who calls; kept, it costs less than a method."""
        return self._chunks.append

    def empty_delta(self, owner: Owner) -> Event:
        """Return the event that tells of more text, with none."""
        return self._delta("", owner)

    def settle(self, *, close: bool) -> None:
        """Make the text final, that of a mirror too; closed, nothing of the part will change any more."""
        self.settled = True
        self.closed = self.closed or close
        if self.mirror is not None:
            self.mirror.settle(close=close)

    def hear(self, delta: str) -> str:
        """Return the text to push for a delta.

        Engines that open a part with text go on from there or repeat it; which, the first delta tells. Half a
        surrogate pair at the end is kept for the next delta: alone no client could read it.
        """
        if self.opening is not None and not self._chunks:
            opening = part_text(self.opening) or ""
            if not opening.startswith(delta) and not delta.startswith(opening) and not self._is_whole(opening):
                delta = opening + delta
        if self.half and delta:
            pair = (self.half + delta[0]).encode("utf-16-le", "surrogatepass")
            delta = pair.decode("utf-16-le", "surrogatepass") + delta[1:]
            self.half = ""
        if "\ud800" <= delta[-1:] <= "\udbff":
            delta, self.half = delta[:-1], delta[-1]
        return delta

    def missing(self, snapshot: str | None) -> str:
        """Return what a snapshot holds beyond the accumulated text.

        A snapshot that contradicts what was streamed is not believed: the client already has the streamed text.
        """
        if not snapshot or self.settled:
            return ""
        known = self.text
        if len(snapshot) <= len(known) or not snapshot.startswith(known):
            return ""
        self.half = ""
        return snapshot[len(known) :]

    def base_charge(self) -> int:
        """Return what the part costs beyond its text, in bytes; asked while the text is empty."""
        return charge(to_builtins(self.render()))

    def flush(self, owner: Owner) -> list[Event]:
        """Return the events that tell the client what it has not seen of this part."""
        out: list[Event] = []
        if not self.announced:
            self.announced = True
            out += self._added(owner)
        if self._pending:
            out.append(self._delta("".join(self._pending), owner))
            self._pending.clear()
        if self.annotations:
            out += self._annotate(owner)
        if self.settled and not self._said_text:
            self._said_text = True
            out.append(self._text_done(owner))
        if self.closed and not self._said_done:
            self._said_done = True
            out += self._done(owner)
        return out

    def render(self) -> Any:
        """Return the part as it stands in its item."""
        raise NotImplementedError

    def _is_whole(self, opening: str) -> bool:  # noqa: ARG002
        """Whether nothing can follow an opening, so that it only holds the place of what comes."""
        return False

    def _added(self, owner: Owner) -> list[Event]:
        return [
            events.ContentPartAdded(
                content_index=self.index, part=self._empty(), item_id=owner.id, output_index=owner.output_index
            )
        ]

    def _empty(self) -> Any:
        raise NotImplementedError

    def _delta(self, text: str, owner: Owner) -> Event:
        raise NotImplementedError

    def _text_done(self, owner: Owner) -> Event:
        raise NotImplementedError

    def _annotate(self, owner: Owner) -> list[Event]:
        raise NotImplementedError

    def _done(self, owner: Owner) -> list[Event]:
        return [
            events.ContentPartDone(
                content_index=self.index, part=self.render(), item_id=owner.id, output_index=owner.output_index
            )
        ]


class TextPart(Part):
    """Text of a message, with its annotations and log probabilities.

    Attributes:
        annotations: all of them, the engine's and the gateway's.
        cited: the gateway added some, so that a snapshot of the engine's cannot replace them.
        logprobs: of its tokens.
    """

    __slots__ = ("_annotations_said", "_logprobs_pending", "annotations", "cited", "logprobs")

    def __init__(self, index: int) -> None:
        Part.__init__(self, index)
        self.annotations: list[Any] = []
        self.cited = False
        self.logprobs: list[Any] = []
        self._annotations_said = 0
        self._logprobs_pending: list[Any] = []

    def push_logprobs(self, logprobs: list[Any]) -> None:
        """Append the log probabilities of the text pushed last."""
        self.logprobs.extend(logprobs)
        self._logprobs_pending.extend(logprobs)

    def adopt(self, annotations: Any, logprobs: Any) -> int:
        """Take a snapshot's lists where it has any; returns by how many bytes the charge grows."""
        grown = 0
        if isinstance(annotations, list) and annotations and annotations != self.annotations and not self.cited:
            grown += charge(annotations) - charge(self.annotations)
            self.annotations = annotations
            self._annotations_said = len(annotations)
        if isinstance(logprobs, list) and logprobs and logprobs != self.logprobs:
            grown += charge(logprobs) - charge(self.logprobs)
            self.logprobs = logprobs
        return grown

    def cite(self, sources: Sources) -> int:
        """Annotate the finished text where it cites a source; returns by how many bytes the charge grows."""
        found = sources.cite(self.text)
        self.cited = bool(found)
        self.annotations = [*self.annotations, *found]
        return charge(found) - VALUE_BYTES

    def render(self) -> items.OutputText:
        """Return the text with its annotations and log probabilities."""
        return items.OutputText(text=self.text, annotations=self.annotations, logprobs=self.logprobs)

    def _empty(self) -> items.OutputText:
        return items.OutputText(text="")

    def _delta(self, text: str, owner: Owner) -> Event:
        event = events.OutputTextDelta(
            content_index=self.index, delta=text, item_id=owner.id, output_index=owner.output_index
        )
        if self._logprobs_pending:
            event.logprobs, self._logprobs_pending = self._logprobs_pending, []
        return event

    def _text_done(self, owner: Owner) -> Event:
        return events.OutputTextDone(
            content_index=self.index,
            text=self.text,
            logprobs=self.logprobs,
            item_id=owner.id,
            output_index=owner.output_index,
        )

    def _annotate(self, owner: Owner) -> list[Event]:
        said, self._annotations_said = self._annotations_said, len(self.annotations)
        return [
            events.AnnotationAdded(
                content_index=self.index,
                annotation_index=number,
                annotation=annotation,
                item_id=owner.id,
                output_index=owner.output_index,
            )
            for number, annotation in enumerate(self.annotations[said:], said)
        ]


class RefusalPart(Part):
    """A refusal inside a message."""

    __slots__ = ()

    def render(self) -> items.Refusal:
        """Return the refusal."""
        return items.Refusal(refusal=self.text)

    def _empty(self) -> items.Refusal:
        return items.Refusal(refusal="")

    def _delta(self, text: str, owner: Owner) -> Event:
        return events.RefusalDelta(
            content_index=self.index, delta=text, item_id=owner.id, output_index=owner.output_index
        )

    def _text_done(self, owner: Owner) -> Event:
        return events.RefusalDone(
            content_index=self.index, refusal=self.text, item_id=owner.id, output_index=owner.output_index
        )


class ReasoningPart(Part):
    """Reasoning as the model wrote it."""

    __slots__ = ()

    def render(self) -> items.ReasoningText:
        """Return the reasoning text."""
        return items.ReasoningText(text=self.text)

    def _empty(self) -> items.ReasoningText:
        return items.ReasoningText(text="")

    def _delta(self, text: str, owner: Owner) -> Event:
        return events.ReasoningTextDelta(
            content_index=self.index, delta=text, item_id=owner.id, output_index=owner.output_index
        )

    def _text_done(self, owner: Owner) -> Event:
        return events.ReasoningTextDone(
            content_index=self.index, text=self.text, item_id=owner.id, output_index=owner.output_index
        )


class SummaryPart(Part):
    """A summary of reasoning; it has an index of its own."""

    __slots__ = ()

    def render(self) -> items.SummaryText:
        """Return the summary text."""
        return items.SummaryText(text=self.text)

    def _empty(self) -> items.SummaryText:
        return items.SummaryText(text="")

    def _added(self, owner: Owner) -> list[Event]:
        return [
            events.SummaryPartAdded(
                summary_index=self.index, part=self._empty(), item_id=owner.id, output_index=owner.output_index
            )
        ]

    def _delta(self, text: str, owner: Owner) -> Event:
        return events.SummaryTextDelta(
            summary_index=self.index, delta=text, item_id=owner.id, output_index=owner.output_index
        )

    def _text_done(self, owner: Owner) -> Event:
        return events.SummaryTextDone(
            summary_index=self.index, text=self.text, item_id=owner.id, output_index=owner.output_index
        )

    def _done(self, owner: Owner) -> list[Event]:
        return [
            events.SummaryPartDone(
                summary_index=self.index, part=self.render(), item_id=owner.id, output_index=owner.output_index
            )
        ]


class OpaquePart(Part):
    """A content part of a type this gateway does not know; it is carried as it came."""

    __slots__ = ("value",)

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.value: dict[str, Any] = {}

    def render(self) -> dict[str, Any]:
        """Return the part as it came."""
        return self.value

    def base_charge(self) -> int:
        """Return the charge of the value the part has now."""
        return charge(self.value)

    def flush(self, owner: Owner) -> list[Event]:
        """Return the part's `added` and `done`; it has no deltas."""
        self._said_text = True
        return super().flush(owner)

    def _empty(self) -> dict[str, Any]:
        return self.value


@cache
def charge_new(kind: type[Part]) -> int:
    """Return what a new part of a kind costs, in bytes."""
    return kind(0).base_charge()


def part_text(part: dict[str, Any]) -> str | None:
    """Return the text of an engine's part object."""
    text = part.get("refusal" if part.get("type") == "refusal" else "text")
    return text if isinstance(text, str) else None


def list_objects(parts: Any) -> list[tuple[int, dict[str, Any]]]:
    """Return the part objects of a list with their indexes; a bare text stands for one part."""
    if isinstance(parts, list):
        return [(index, part) for index, part in enumerate(parts) if isinstance(part, dict)]
    return [(0, {"type": None, "text": parts})] if isinstance(parts, str) else []
