"""The simulated models: what each name stands for."""

import enum
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from gateway.upstream.simulated.directives import Directives, Wanted, read_directives
from gateway.upstream.simulated.plan import Call, Plan, Refuse, Say, Step, Think
from gateway.upstream.simulated.requests import Asked, Refusal

MAX_PACE_SECONDS = 60.0
_QUOTE_CHARS = 120
# Line separators that are no line ends in an event stream, an escaped quote, a family joined from several code
# points, a combining accent and scripts of two, three and four bytes.
_UNICODE_TEXT = 'Line\u2028para\u2029next\x85 "quoted" \\ tab\t emoji 👩‍👩‍👧 e\u0301 Grüße Привет 世界 𝄞 end'


class Fault(enum.Enum):
    """What goes wrong after the status line."""

    CUT = "the connection is cut"
    STALL = "nothing more is sent"
    ERROR_EVENT = "an error event ends the stream"


class Behaviour(Struct, frozen=True):
    """How one request is answered.

    Attributes:
        plan: what is said.
        fault: what goes wrong a few tokens later, or None.
        pace: seconds before each token, or None for the simulator's own.
        piece_bytes: the stream is sent in pieces of this size whatever they split, or None for one event at a time.
        raw: content type and body sent in place of any plan, or None.
    """

    plan: Plan = Plan()
    fault: Fault | None = None
    pace: float | None = None
    piece_bytes: int | None = None
    raw: tuple[str, bytes] | None = None


class Persona(Struct, frozen=True):
    """A simulated model.

    Attributes:
        name: the model name.
        about: one line for people.
        behave: from a request to its answer; raises `Refusal` to refuse it.
    """

    name: str
    about: str
    behave: Callable[[Asked], Behaviour]


def find_persona(model: str) -> Persona | None:
    """Return the persona of that name, or None; `sim-slow-SECONDS` is `sim-slow` at another pace."""
    paced = re.fullmatch(r"sim-slow-(\d+(?:\.\d+)?)", model)
    if paced is not None:
        pace = min(float(paced[1]), MAX_PACE_SECONDS)
        return Persona(model, "", lambda asked: Behaviour(_converse(asked), pace=pace))
    return next((persona for persona in PERSONAS if persona.name == model), None)


def _converse(asked: Asked) -> Plan:
    told = asked.script if asked.script is not None else asked.messages[-1] if asked.messages else None
    wanted = Directives() if told is None else read_directives(told)
    if asked.functions and (calls := wanted.calls_after(len(asked.outputs))):
        return Plan([_call_wanted(asked, call) for call in calls])
    if asked.must_call and not asked.outputs:
        return _call(asked, 1)
    if wanted.words is not None:
        return Plan([Say(wanted.words)])
    if asked.outputs or asked.letters:
        return Plan([Say(" ".join(_report(asked)))])
    *earlier, last = asked.messages or [""]
    text = f"You said {_quote(last)}." if last else "You said nothing yet."
    if earlier:
        times = "once" if len(earlier) == 1 else f"{len(earlier)} times"
        text += f" Before that you wrote {times}, first {_quote(earlier[0])}."
    return Plan([Say(text + " I am a simulated model, but I read all of it.")])


def _report(asked: Asked) -> Iterator[str]:
    if asked.outputs:
        yield "The tool answered: " + "; ".join(map(_quote, asked.outputs)) + "."
    if asked.letters:
        yield "Other agents wrote: " + "; ".join(map(_quote, asked.letters)) + "."


def _call_wanted(asked: Asked, wanted: Wanted) -> Step:
    """Call a tool by its name or by the end of it, which is what the members of a namespace and of a server keep."""
    offered = asked.functions
    fitting = [tool for tool in offered if tool.get("name") == wanted.name] or [
        tool for tool in offered if str(tool.get("name")).endswith(f"__{wanted.name}")
    ]
    if not fitting:
        return Say(f"You offered me no function {_quote(wanted.name)}.")
    return Call(fitting[0]["name"], wanted.arguments or _fill(fitting[0].get("parameters") or {}))


def _quote(text: str) -> str:
    short = text if len(text) <= _QUOTE_CHARS else text[:_QUOTE_CHARS] + "…"
    return f"“{short}”"


def _think(asked: Asked) -> Plan:
    thought = Think("The user wants an answer. A friendly one, I think, and a short one.")
    return Plan([thought, *_converse(asked).steps])


def _call(asked: Asked, count: int) -> Plan:
    functions = asked.functions
    if asked.outputs or not functions:
        return _converse(asked) if asked.outputs else Plan([Say("You offered me no function that I may call.")])
    chosen = [functions[number % len(functions)] for number in range(count)]
    calls: list[Step] = [Call(tool.get("name", ""), _fill(tool.get("parameters") or {})) for tool in chosen]
    return Plan(calls)


def _fill(schema: dict[str, Any]) -> str:
    return json.dumps(_example(schema))


def _example(schema: dict[str, Any]) -> Any:
    if schema.get("enum"):
        return schema["enum"][0]
    kind = schema.get("type")
    match kind[0] if isinstance(kind, list) and kind else kind:
        case "string":
            return "Paris"
        case "integer" | "number":
            return 1
        case "boolean":
            return True
        case "array":
            return []
        case _:
            return {name: _example(part) for name, part in (schema.get("properties") or {}).items()}


def _refuse_with(status: int, message: str, type: str) -> Callable[[Asked], Behaviour]:
    def behave(_: Asked) -> Behaviour:
        raise Refusal(status, message, type=type)

    return behave


def _garble(asked: Asked) -> Behaviour:
    if asked.stream:
        return Behaviour(raw=("text/event-stream", b'event: response.created\ndata: {"type": nonsense\n\n\xff\xfe\n\n'))
    return Behaviour(raw=("application/json", b'{"id":"resp_x","object":'))


def _always(behaviour: Behaviour) -> Callable[[Asked], Behaviour]:
    return lambda _: behaviour


PERSONAS: tuple[Persona, ...] = (
    Persona("sim", "answers, and quotes what it heard before", lambda asked: Behaviour(_converse(asked))),
    Persona("sim-think", "reasons, then answers", lambda asked: Behaviour(_think(asked))),
    Persona("sim-tool", "calls the first function, answers its output", lambda asked: Behaviour(_call(asked, 1))),
    Persona("sim-tools2", "calls two functions at once", lambda asked: Behaviour(_call(asked, 2))),
    Persona(
        "sim-incomplete",
        "stops at the token limit",
        _always(Behaviour(Plan([Say("This answer ends in the middle of a")], incomplete=True))),
    ),
    Persona("sim-refuse", "refuses politely", _always(Behaviour(Plan([Refuse("I cannot help with that.")])))),
    Persona("sim-empty", "says nothing at all", _always(Behaviour())),
    Persona(
        "sim-unicode",
        "difficult characters, cut anywhere",
        _always(Behaviour(Plan([Say(_UNICODE_TEXT)]), piece_bytes=7)),
    ),
    Persona("sim-slow", "a quarter of a second per word", lambda asked: Behaviour(_converse(asked), pace=0.25)),
    Persona("sim-stall", "falls silent in the middle", lambda asked: Behaviour(_converse(asked), fault=Fault.STALL)),
    Persona(
        "sim-cut", "the connection is cut in the middle", lambda asked: Behaviour(_converse(asked), fault=Fault.CUT)
    ),
    Persona("sim-cut-json", "half a JSON body", lambda asked: Behaviour(_converse(asked), fault=Fault.CUT)),
    Persona("sim-error-event", "an error event", lambda asked: Behaviour(_converse(asked), fault=Fault.ERROR_EVENT)),
    Persona("sim-error-400", "400", _refuse_with(400, "The simulated request is wrong.", "BadRequestError")),
    Persona("sim-error-429", "429", _refuse_with(429, "The simulated queue is full.", "RateLimitError")),
    Persona("sim-error-500", "500", _refuse_with(500, "The simulated engine failed.", "InternalServerError")),
    Persona("sim-error-503", "503", _refuse_with(503, "The simulated engine is busy.", "ServiceUnavailableError")),
    Persona(
        "sim-html",
        "200 with a web page",
        _always(Behaviour(raw=("text/html; charset=utf-8", b"<html><body>It works!</body></html>"))),
    ),
    Persona("sim-garbage", "200 with broken JSON", _garble),
)
