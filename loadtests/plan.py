"""What a load run does: one TOML file, environment variables, flags, checked as a whole."""

import difflib
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct, structs

PLAN_FILE = Path(__file__).with_name("load.toml")
KINDS = ("json", "sse", "websocket", "lanes", "chain", "websocket_chain")
_PREFIX = "LOAD_"
# Where the target's key is; never part of a plan.
KEY_VARIABLES = frozenset({"LOAD_API_KEY", "LOAD_API_KEY_FILE"})
_OTHERS = KEY_VARIABLES | {"LOAD_PLAN", "LOAD_OUT"}

Count = Annotated[int, Meta(ge=1)]
Weight = Annotated[int, Meta(ge=0)]
Seconds = Annotated[float, Meta(gt=0)]
SecondsOrZero = Annotated[float, Meta(ge=0)]
Milliseconds = Annotated[float, Meta(gt=0)]


class PlanError(Exception):
    """The plan cannot be used; the message has a line for each fault."""


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table of the file; load.toml says what its keys mean."""


class Run(Section):
    shape: Literal["constant", "ramp", "steps", "manual"]
    users: Count
    seconds: Seconds
    warmup_seconds: SecondsOrZero
    think_seconds: SecondsOrZero
    failure_rest_seconds: SecondsOrZero
    timeout_seconds: Seconds
    progress_seconds: Seconds
    workers_wait_seconds: Count


class Ramp(Section):
    first_users: Count


class Steps(Section):
    first_users: Count
    factor: Annotated[float, Meta(gt=1)]
    max_users: Count
    settle_seconds: SecondsOrZero
    hold_seconds: Seconds
    attempts: Count


class Mix(Section):
    json: Weight
    sse: Weight
    websocket: Weight
    lanes: Weight
    chain: Weight
    websocket_chain: Weight


class Lanes(Section):
    count: Count


class Chain(Section):
    turns: Count


class Request(Section):
    model: str
    prompt: str
    store: bool
    echo: bool
    expect: str
    body: dict[str, Any]


class Objectives(Section):
    ttft_ms: Milliseconds
    itl_ms: Milliseconds
    e2e_ms: Milliseconds
    share: Annotated[float, Meta(gt=0, le=1)]


class Control(Section):
    seconds: SecondsOrZero


class RigSettings(Section):
    pace_seconds: SecondsOrZero


class Plan(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One load run."""

    run: Run
    ramp: Ramp
    steps: Steps
    mix: Mix
    lanes: Lanes
    chain: Chain
    request: Request
    slo: Objectives
    control: Control
    rig: RigSettings

    @property
    def weights(self) -> dict[str, int]:
        """How many users of each kind there are in proportion, those left out missing."""
        return {kind: weight for kind, weight in structs.asdict(self.mix).items() if weight}

    def vary(self, **sections: Mapping[str, Any]) -> "Plan":
        """Return a plan with some keys of some sections replaced."""
        changed = {name: structs.replace(getattr(self, name), **keys) for name, keys in sections.items()}
        return structs.replace(self, **changed)


def load_plan(file: Path = PLAN_FILE, environ: Mapping[str, str] | None = None, overrides: Sequence[str] = ()) -> Plan:
    """Read a plan; a key that a file leaves out is as in load.toml.

    Args:
        file: a TOML file.
        environ: variables `LOAD_SECTION__KEY`; None means none.
        overrides: `section.key=value` each, before everything else.

    Raises:
        PlanError: with every fault.
    """
    document = _read(PLAN_FILE)
    origins = dict.fromkeys(_paths(document), str(PLAN_FILE))
    if file != PLAN_FILE:
        _lay_over(document, origins, _read(file), str(file))
    for origin, path, text in (*_from_environment(environ or {}), *_from_flags(overrides)):
        _lay_over(document, origins, {path[0]: {path[1]: _parse(text)}}, origin)
    faults: list[str] = []
    values = {
        name: _convert(name, section, document.pop(name), origins, faults) for name, section in _sections().items()
    }
    faults += [
        f"{origins.get((name, ''), 'the plan')}: unknown section [{name}]{_suggest(name, _sections())}"
        for name in document
    ]
    if not faults:
        plan = Plan(**values)
        faults += _review(plan)
    if faults:
        raise PlanError("\n".join(faults))
    return plan


def read_api_key(environ: Mapping[str, str]) -> str | None:
    """Return the key that `LOAD_API_KEY` holds, or the file that `LOAD_API_KEY_FILE` names; None without either.

    Raises:
        PlanError: both are set, or the file cannot be read; the key itself is never repeated.
    """
    key, file = environ.get("LOAD_API_KEY"), environ.get("LOAD_API_KEY_FILE")
    if key and file:
        raise PlanError("LOAD_API_KEY and LOAD_API_KEY_FILE are both set; keep one of them")
    if file:
        try:
            key = Path(file).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            raise PlanError(f"LOAD_API_KEY_FILE: {file} cannot be read: {type(error).__name__}") from None
    if key and not (key.isascii() and key.isprintable()):
        raise PlanError("the API key holds characters that no HTTP header can carry")
    return key or None


def _sections() -> dict[str, type[Section]]:
    return {field.name: field.type for field in structs.fields(Plan)}


def _read(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except OSError as error:
        raise PlanError(f"{file} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise PlanError(f"{file} is not valid TOML: {error}") from None


def _paths(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for name, section in document.items():
        yield name, ""
        if isinstance(section, dict):
            yield from ((name, key) for key in section)


def _lay_over(
    document: dict[str, Any], origins: dict[tuple[str, str], str], above: Mapping[str, Any], origin: str
) -> None:
    for name, section in above.items():
        if isinstance(section, dict) and isinstance(document.get(name, {}), dict):
            document[name] = {**document.get(name, {}), **section}
        else:
            document[name] = section
            origins[name, ""] = origin
        origins.setdefault((name, ""), origin)
    origins.update((path, origin) for path in _paths(above) if path[1])


def _from_environment(environ: Mapping[str, str]) -> Iterator[tuple[str, tuple[str, str], str]]:
    for name, text in sorted(environ.items()):
        if name.startswith(_PREFIX) and name not in _OTHERS:
            section, separator, key = name.removeprefix(_PREFIX).lower().partition("__")
            if not separator:
                raise PlanError(f"{name} names no key; such variables are called LOAD_SECTION__KEY")
            yield name, (section, key), text


def _from_flags(overrides: Sequence[str]) -> Iterator[tuple[str, tuple[str, str], str]]:
    for override in overrides:
        path, separator, text = override.partition("=")
        section, dot, key = path.strip().partition(".")
        if not (separator and dot):
            raise PlanError(f"--set {override}: this is not section.key=value")
        yield "--set", (section, key), text


def _parse(text: str) -> Any:
    """Return the table a text is, if it is one; numbers are read where one is wanted."""
    if text.startswith("{"):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError:
            return text
    return text


def _convert(
    name: str, section: type[Section], value: Any, origins: Mapping[tuple[str, str], str], faults: list[str]
) -> Section | None:
    """Return a section, or None after adding what is wrong with it."""
    before = len(faults)
    if not isinstance(value, dict):
        faults.append(f"{origins[name, '']}: [{name}] must be a table")
        return None
    known = {field.name: field.type for field in structs.fields(section)}
    converted: dict[str, Any] = {}
    for key, given in value.items():
        origin = origins[name, key]
        if key not in known:
            faults.append(f"{origin}: unknown key {name}.{key}{_suggest(key, known)}")
            continue
        try:
            # Texts come from variables and flags, which know no other type.
            converted[key] = msgspec.convert(given, known[key], strict=not isinstance(given, str))
        except msgspec.ValidationError as error:
            faults.append(f"{origin}: {name}.{key}: {error}")
    return section(**converted) if len(faults) == before else None


def _review(plan: Plan) -> Iterator[str]:
    if not plan.weights:
        yield "mix: every kind is 0, so there is nobody to ask anything"
    if plan.run.shape != "steps" and plan.run.warmup_seconds >= plan.run.seconds:
        yield "run.warmup_seconds: must be less than run.seconds, or nothing is measured"
    if plan.steps.first_users > plan.steps.max_users:
        yield "steps.first_users: must not be more than steps.max_users"


def _suggest(name: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f" (did you mean {close[0]}?)" if close else f"; there are {', '.join(known)}"
