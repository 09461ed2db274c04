"""An engine that may say the same thing in many ways, and the client's view of a turn that listens to it."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from conformance.rules import Judge, check_events
from conformance.wire import WireEvent
from hypothesis import strategies as st

from gateway.protocol import codec
from gateway.protocol.announcer import Round
from gateway.protocol.carriage import Carriage
from gateway.protocol.client_tools import CLIENT_TOOLS
from gateway.protocol.errors import GatewayError
from gateway.protocol.events import CATALOGUE, Event
from gateway.protocol.ledger import charge
from gateway.protocol.limits import Limits
from gateway.protocol.response import EncodedResponse, Response
from gateway.protocol.turn import Turn
from gateway.protocol.upstream_events import parse

Json = dict[str, Any]

AMPLE = 1 << 30
MINTED = re.compile(r"\b[a-z]+_[0-9a-f]{32}\b")
CARRIED = "run_shell"


# ---------------------------------------------------------------- the listening side


def counting_mint() -> Callable[[str], str]:
    """Ids as the gateway mints them, but the same in every run."""
    numbers = count(1)
    return lambda prefix: f"{prefix}_{next(numbers):032x}"


def make_turn(max_retained_bytes: int = AMPLE, **options: Any) -> Turn:
    """A turn of a request that declares the custom tool `run_shell` and every tool of the API that clients run."""
    mint = counting_mint()
    carriage = Carriage()
    for tool in [{"type": "custom", "name": CARRIED}, *({"type": kind} for kind in CLIENT_TOOLS)]:
        carriage.declare(tool)
    response = Response(id=mint("resp"), created_at=1_790_000_000, status="in_progress", model="m")
    limits = Limits(max_retained_bytes=max_retained_bytes)
    return Turn(response, limits, mint, **{"carriage": carriage, **options})


@dataclass
class Client:
    """Listens to one turn and remembers what it was told, as decoded JSON."""

    turn: Turn = field(default_factory=make_turn)
    told: list[Json] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.hear(self.turn.begin())

    def hear(self, out: Iterable[Event]) -> None:
        self.told.extend(codec.decode(codec.encode(event)) for event in out)

    def ingest(self, round_: Round, event: Json) -> None:
        """Let the turn take an engine's event the way it arrives: as bytes, and by the short way if that takes it."""
        parsed = parse(b"", json.dumps(event).encode())
        delta = None if round_.flow is None else round_.flow.tell(parsed)
        if delta is None:
            self.hear(self.turn.ingest(round_, parsed))
        else:
            name, data = delta
            self.told.append(codec.decode(data))
            assert self.told[-1]["type"] == name.decode()
            # Written from pieces, it is what the event itself would be.
            assert codec.encode(codec.convert(self.told[-1], CATALOGUE[name.decode()])) == data

    def finish(self) -> "Client":
        proposed = EncodedResponse(self.turn.propose(1_790_000_002))
        self.hear([self.turn.announce(proposed)])
        self.turn.settle(proposed.response)
        return self

    def fail(self, error: GatewayError, round_: Round | None = None) -> "Client":
        owed, forms = self.turn.fail(error, round_)
        self.hear([*owed, next(forms)])
        return self

    @property
    def output(self) -> list[Json]:
        return self.told[-1]["response"]["output"]

    @property
    def deltas(self) -> dict[tuple[Any, ...], str]:
        """All deltas of each channel in one piece."""
        joined: dict[tuple[Any, ...], str] = {}
        for event in self.told:
            if event["type"].endswith(".delta"):
                place = (event["type"], event["output_index"], event.get("content_index"), event.get("summary_index"))
                joined[place] = joined.get(place, "") + event["delta"]
        return joined

    def faults(self, **judge: Any) -> list[str]:
        """What the stream breaks of the rules every client relies on."""
        return faults_of(self.told, **judge)


def faults_of(told: list[Json], **judge: Any) -> list[str]:
    events = [WireEvent(number, event) for number, event in enumerate(told)]
    return [str(violation) for violation in check_events(events, Judge(**judge))]


def without_ids(value: Any) -> Any:
    """The value with every minted id replaced by its prefix and the number of its first appearance."""
    seen: dict[str, str] = {}

    def name(found: re.Match[str]) -> str:
        return seen.setdefault(found[0], f"{found[0].partition('_')[0]}-{len(seen)}")

    return json.loads(MINTED.sub(name, json.dumps(value)))


# ---------------------------------------------------------------- what an engine may say

# Every character that an escape, a line rule or an encoding treats in its own way.
ALPHABET = 'aZ é你😀👩‍👩‍👧\0\x1b\x7f\n\r\t"\\/{}\u2028\u2029\ufeff\udfff'
texts = st.text(ALPHABET, max_size=24)
names = st.sampled_from(["get_weather", "wörter", "x" * 64])


@st.composite
def messages(draw: st.DrawFn) -> Json:
    parts = st.one_of(
        st.builds(lambda text: {"type": "output_text", "text": text, "annotations": [], "logprobs": []}, texts),
        st.builds(lambda text: {"type": "refusal", "refusal": text}, texts),
    )
    phase = draw(st.sampled_from([{}, {"phase": "commentary"}]))
    return {"type": "message", "role": "assistant", "content": draw(st.lists(parts, max_size=3)), **phase}


@st.composite
def reasonings(draw: st.DrawFn) -> Json:
    summary = draw(st.lists(texts, max_size=2))
    content = draw(st.lists(texts, max_size=2))
    sealed = draw(st.sampled_from([{}, {"encrypted_content": "gAAAA=="}]))
    return {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text} for text in summary],
        "content": [{"type": "reasoning_text", "text": text} for text in content],
        **sealed,
    }


def _calls(kind: str, argument: str, name: st.SearchStrategy[str], text: st.SearchStrategy[str]) -> Any:
    call_ids = st.sampled_from(["call_a", "call_b", "", "c" * 65])
    return st.fixed_dictionaries({"type": st.just(kind), "call_id": call_ids, "name": name, argument: text})


function_calls = _calls("function_call", "arguments", names, texts)
custom_calls = _calls("custom_tool_call", "input", names, texts)
carried_calls = _calls(
    "function_call",
    "arguments",
    st.just(CARRIED),
    st.one_of(texts, texts.map(lambda text: json.dumps({"input": text}))),
)
# What a model may write for a tool of the API: as agreed, nearly so, or anything.
_members = st.one_of(
    texts, st.integers(-1, 9), st.none(), st.lists(texts, max_size=2), st.sampled_from(["update_file", "click", "wait"])
)
_asked = st.dictionaries(
    st.sampled_from(
        ["commands", "command", "timeout_ms", "type", "path", "diff", "operation", "actions", "x", "y", "env"]
    ),
    st.one_of(_members, st.dictionaries(st.sampled_from(["type", "path", "x", "y"]), _members, max_size=3)),
    max_size=4,
)
client_calls = _calls(
    "function_call", "arguments", st.sampled_from(sorted(CLIENT_TOOLS)), st.one_of(texts, _asked.map(json.dumps))
)
searches = st.just({"type": "web_search_call", "action": {"type": "search", "query": "q"}})

plain_items = st.one_of(messages(), reasonings(), function_calls, custom_calls)
items = st.one_of(plain_items, carried_calls, client_calls, searches)


@dataclass(frozen=True)
class Style:
    """How an engine words its stream.

    Attributes:
        ids: events name the item by id.
        indexes: events name the item by index.
        added: items and parts are announced.
        dones: texts and parts are said to be done before their item is.
    """

    ids: bool = True
    indexes: bool = True
    added: bool = True
    dones: bool = True


styles = st.builds(Style, st.booleans(), st.booleans(), st.booleans(), st.booleans())
FULL = Style()


def finished(item: Json, index: int, tag: str = "e") -> Json:
    """The item as an engine ends it."""
    return {"id": f"{tag}{index}", "status": "completed", **item}


def body_of(said: list[Json], status: str = "completed") -> Json:
    """The engine's whole answer in JSON."""
    return {"status": status, "output": [finished(item, index) for index, item in enumerate(said)]}


def spell(item: Json, index: int, cut: Callable[[str], list[str]], style: Style = FULL, tag: str = "e") -> list[Json]:
    """All events of one item; `cut` says in which pieces a text arrives."""
    named = {"item_id": f"{tag}{index}"} if style.ids else {}
    place = {**named, **({"output_index": index} if style.indexes else {})}
    at = {"output_index": index} if style.indexes else {}
    shown = finished(item, index, tag)
    if not style.ids:
        del shown["id"]
    empty = {
        **shown,
        "status": "in_progress",
        **{name: "" for name in ("arguments", "input") if name in item},
        **{name: [] for name in ("content", "summary") if name in item},
    }
    out: list[Json] = [{"type": "response.output_item.added", "item": empty, **at}] if style.added else []
    out += [{**event, **place} for event in _spell_inside(item, cut, style)]
    return [*out, {"type": "response.output_item.done", "item": shown, **at}]


def _spell_inside(item: Json, cut: Callable[[str], list[str]], style: Style) -> Iterator[Json]:
    for number, part in enumerate(item.get("content", [])):
        yield from _spell_part(part, {"content_index": number}, cut, style)
    for number, part in enumerate(item.get("summary", [])):
        yield from _spell_part(part, {"summary_index": number}, cut, style)
    for name, family in (("arguments", "function_call_arguments"), ("input", "custom_tool_call_input")):
        if name in item:
            yield from ({"type": f"response.{family}.delta", "delta": piece} for piece in cut(item[name]))
            if style.dones:
                yield {"type": f"response.{family}.done", name: item[name]}
    if item["type"] == "web_search_call" and style.added:
        yield from ({"type": f"response.web_search_call.{step}"} for step in ("in_progress", "searching", "completed"))


def _spell_part(part: Json, at: Json, cut: Callable[[str], list[str]], style: Style) -> Iterator[Json]:
    kind = part["type"]
    name = "refusal" if kind == "refusal" else "text"
    family = {"reasoning_text": "reasoning_part", "summary_text": "reasoning_summary_part"}.get(kind, "content_part")
    stem = "reasoning_summary_text" if kind == "summary_text" else kind
    if style.added:
        yield {"type": f"response.{family}.added", "part": {**part, name: ""}, **at}
    yield from ({"type": f"response.{stem}.delta", "delta": piece, **at} for piece in cut(part[name]))
    if style.dones:
        yield {"type": f"response.{stem}.done", name: part[name], **at}
        yield {"type": f"response.{family}.done", "part": part, **at}


def whole(text: str) -> list[str]:
    """A text in one piece."""
    return [text]


@st.composite
def cutters(draw: st.DrawFn) -> Callable[[str], list[str]]:
    """A way of cutting texts, empty pieces included."""

    def cut(text: str) -> list[str]:
        places = sorted(draw(st.lists(st.integers(0, len(text)), max_size=6)))
        return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]

    return cut


def completed(said: list[Json] | None = None, status: str = "completed") -> Json:
    """The engine's terminal event; with `said`, its snapshot repeats all items."""
    output = body_of(said)["output"] if said is not None else []
    return {"type": f"response.{status}", "response": {"status": status, "output": output}}


def play(said: list[Json], cut: Callable[[str], list[str]] = whole, style: Style = FULL, **options: Any) -> Client:
    """Let an engine say the items to a new turn, to the end."""
    client = Client(make_turn(**options))
    round_ = client.turn.open_round()
    for index, item in enumerate(said):
        for event in spell(item, index, cut, style):
            client.ingest(round_, event)
    client.ingest(round_, completed(said))
    return client.finish()


def play_body(said: list[Json], **options: Any) -> Client:
    """Let a turn take the items as one JSON body."""
    client = Client(make_turn(**options))
    client.hear(client.turn.ingest_body(client.turn.open_round(), codec.decode(json.dumps(body_of(said)).encode())))
    return client.finish()


def listen(*events: Json, end: Json | None = None, **options: Any) -> Client:
    """Let a new turn take an engine's events; without an `end` of its own the engine completes."""
    client = Client(make_turn(**options))
    round_ = client.turn.open_round()
    for event in events:
        client.ingest(round_, event)
    client.ingest(round_, end or completed())
    return client.finish()


# ---------------------------------------------------------------- single events and items

MESSAGE: Json = {
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Hi", "annotations": [], "logprobs": []}],
}
CALL: Json = {"type": "function_call", "call_id": "call_1", "name": "f", "arguments": "{}"}


def event(kind: str, **fields: Any) -> Json:
    return {"type": f"response.{kind}", **fields}


def added(item: Json, index: int | None = None) -> Json:
    return event("output_item.added", item=item, output_index=index)


def done(item: Json, index: int | None = None) -> Json:
    return event("output_item.done", item=item, output_index=index)


def text(delta: str, **place: Any) -> Json:
    return event("output_text.delta", delta=delta, **place)


def texts_of(client: Client) -> list[list[str]]:
    """The texts of each output item's content."""
    return [[part.get("text", part.get("refusal")) for part in item["content"]] for item in client.output]


def settled(client: Client) -> Client:
    """The client, once its stream keeps the rules and the ledger holds exactly what is kept."""
    assert client.faults() == []
    assert client.turn.ledger.total == sum(charge(item) for item in client.output)
    return client
