"""The scenarios: what is asked, what is sent when, and what a recording must show to be worth keeping."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec import Struct

from gateway.cassette import proposals
from gateway.cassette.dialogue import ROOT, Call, Event, Run, read_agent
from gateway.cassette.proposals import answer_call
from gateway.cassette.stage import Stage
from gateway.cassette.talk import Choose, PeerClosed, Talk, each_at_once

_NO_CALL: Final = "the model called no function"
_NO_RACE: Final = "the response ended before a sibling wrote anything: the late outcome was recorded instead"
_UNKNOWN_CALL: Final = "call_unknown"
_FEW_TOKENS: Final = 200


class Scenario(Struct, frozen=True):
    """One scenario.

    Attributes:
        name: `R1` to `R18`.
        title: what it shows.
        play: plays it; returns why the recording does not show that, if it does not.
    """

    name: str
    title: str
    play: Callable[[Stage], Awaitable[str | None]]


async def _play_tree(stage: Stage, prompt: str, choose: Choose) -> tuple[Talk, list[Run]]:
    talk = await stage.connect()
    body = stage.build_tree_body(prompt)
    await talk.converse(await talk.create(body), body, choose)
    return talk, talk.dialogue.runs


async def _play_immediate(stage: Stage) -> str | None:
    _, runs = await _play_tree(stage, proposals.COMPARE, each_at_once)
    return _judge(runs, calls=2)


async def _play_delayed(stage: Stage) -> str | None:
    """Answer the first call at once and the second only when the response has ended without it."""
    talk = await stage.connect()
    body = stage.build_tree_body(proposals.COMPARE)
    run = await talk.create(body)
    await talk.answer(run, lambda run, calls: [[call] for call in calls if call is next(iter(run.calls.values()))])
    held = [call for call in run.open_calls if call in talk.list_left(run)]
    if held and run.terminal is not None:
        await talk.inject(run, [answer_call(held[-1])], "late")
        await talk.settle()
    await talk.converse(run, body, lambda _run, _calls: ())
    return _judge(talk.dialogue.runs, calls=2) or (None if held else "no output was held back")


async def _play_several(stage: Stage) -> str | None:
    """Answer when both agents have called, in one inject."""
    _, runs = await _play_tree(stage, proposals.COMPARE, lambda _run, calls: [calls] if len(calls) > 1 else [])
    if any(len(inject.call_ids) > 1 for run in runs for inject in run.injects):
        return None
    return _judge(runs, calls=2) or "the response ended before two outputs were there at once"


async def _play_back_to_back(stage: Stage) -> str | None:
    """Answer when both agents have called, each by an inject of its own."""

    def choose(_run: Run, calls: Sequence[Call]) -> list[list[Call]]:
        return [[call] for call in calls] if len(calls) > 1 else []

    _, runs = await _play_tree(stage, proposals.COMPARE, choose)
    if any(len(run.injects) > 1 for run in runs):
        return None
    return _judge(runs, calls=2) or "the response ended before two outputs were there at once"


async def _probe(stage: Stage, build: Callable[[Event, Run], Sequence[tuple[Sequence[Event], str]]]) -> str | None:
    """Send injects that are partly wrong while another agent writes, then end the run in good order."""
    talk = await stage.connect()
    body = stage.build_tree_body(proposals.COMPARE_WHILE_WRITING)
    run = await talk.create(body)
    writers: set[str] = set()

    def is_ready() -> bool:
        writers.update(read_agent(event) for event in run.events if event["type"] == "response.output_text.delta")
        owners = {call.agent for call in run.calls.values()}
        return run.is_over or bool(owners and writers - owners - {ROOT})

    await talk.until(is_ready)
    if not run.calls:
        await talk.settle()
        return _NO_CALL
    call = next(iter(run.calls.values()))
    in_time = not run.is_over
    for items, note in build(answer_call(call), run):
        await talk.inject(run, items, note)
        await talk.until(lambda: not run.waiting)
    in_time = in_time and not any(inject.is_late for inject in run.injects)
    await talk.converse(run, body, each_at_once)
    return None if in_time else _NO_RACE


async def _play_duplicate_in_batch(stage: Stage) -> str | None:
    return await _probe(stage, lambda output, _run: [([output, output], "dup"), ([output], "valid")])


async def _play_unknown_in_batch(stage: Stage) -> str | None:
    unknown: Event = {"type": "function_call_output", "call_id": _UNKNOWN_CALL, "output": ""}
    return await _probe(stage, lambda output, _run: [([output, unknown], "unknown"), ([output], "valid")])


async def _play_repeated(stage: Stage) -> str | None:
    return await _probe(stage, lambda output, _run: [([output], "valid"), ([output], "dup")])


async def _play_unknown_response(stage: Stage) -> str | None:
    talk = await stage.connect()
    output = {"type": "function_call_output", "call_id": _UNKNOWN_CALL, "output": ""}
    await talk.send({"type": "response.inject", "response_id": "resp_unknown", "input": [output]}, "unknown")
    await talk.settle()
    return None


async def _play_malformed(stage: Stage) -> str | None:
    talk = await stage.connect()
    run = await talk.create(stage.build_tree_body(proposals.COMPARE))
    await talk.until(lambda: run.id is not None or run.is_over)
    try:
        await talk.send({"type": "response.inject", "response_id": run.id}, "malformed")
        await talk.until(lambda: False)
    except PeerClosed:
        return None
    return "the server kept the connection"


async def _play_chained(stage: Stage) -> str | None:
    talk, runs = await _play_tree(stage, proposals.ASSESS, each_at_once)
    for prompt in (proposals.LAST, proposals.SHORTER):
        body = stage.build_tree_body(prompt, previous_response_id=runs[-1].id)
        await talk.converse(await talk.create(body), stage.build_tree_body(prompt), each_at_once)
    return _judge(runs)


async def _play_lanes(stage: Stage) -> str | None:
    """Let two trees work on one connection, each on a lane of its own."""
    talk = await stage.connect()
    bodies = {lane: stage.build_tree_body(proposals.COMPARE, stream_id=lane) for lane in ("left", "right")}
    open_runs = {lane: await talk.create(body) for lane, body in bodies.items()}
    while open_runs:
        for lane, run in list(open_runs.items()):
            for call in talk.list_left(run):
                if run.id is not None and not run.is_over and not run.waiting:
                    await talk.inject(run, [answer_call(call)])
            if not run.is_over or run.waiting:
                continue
            left = talk.list_left(run)
            if not left or run.response.get("status") != "completed":
                del open_runs[lane]
                continue
            outputs = [answer_call(call) for call in left]
            following = {**bodies[lane], "previous_response_id": run.id, "input": outputs}
            open_runs[lane] = await talk.create(following, "fallback")
        if open_runs:
            await talk.next()
    return _judge(talk.dialogue.runs, calls=2)


async def _play_unstored(stage: Stage) -> str | None:
    talk = await stage.connect()
    run = await talk.create({**stage.build_tree_body(proposals.COMPARE), "store": False}, "store false")
    await talk.answer(run, each_at_once)
    return None if run.error is not None else "the request was not refused"


async def _play_reconnect(stage: Stage) -> str | None:
    """Leave in the middle of a response, come back, and go on from the one before."""
    talk = await stage.connect()
    first = stage.build_tree_body(proposals.ASSESS)
    parent = await talk.converse(await talk.create(first), first, each_at_once)
    if parent.error is not None:
        return _judge([parent])
    body = stage.build_tree_body(proposals.COMPARE, previous_response_id=parent.id)
    run = await talk.create(body)
    await talk.until(lambda: run.is_over or any(True for _ in run.items()))
    in_time = not run.is_over
    talk.socket.abort(by="client")
    stage.remember(talk)
    again = await stage.connect()
    body = stage.build_tree_body(proposals.LAST, previous_response_id=parent.id)
    await again.converse(await again.create(body), stage.build_tree_body(proposals.LAST), each_at_once)
    return _judge(again.dialogue.runs) or (None if in_time else "the response had ended before the connection was left")


async def _play_http(stage: Stage) -> str | None:
    """Ask the same by HTTP, as a stream and as one object, and answer by further requests."""
    runs = []
    for how in ({"stream": True}, {}):
        body = {**stage.build_tree_body(proposals.COMPARE), **how}
        run = await stage.post(body)
        runs.append(run)
        for _ in range(stage.settings.bounds.max_creates):
            if not run.open_calls or run.response.get("status") != "completed":
                break
            outputs = [answer_call(call) for call in run.open_calls]
            run = await stage.post({**body, "previous_response_id": run.id, "input": outputs})
            runs.append(run)
    return _judge(runs, calls=2)


async def _play_steering(stage: Stage) -> str | None:
    """Steer a response that writes, one that is about to call, one that waits for the client, two at once, and late."""
    talk = await stage.connect()

    async def start(prompt: str, **fields: object) -> Run:
        run = await talk.create(stage.build_body(input=prompt, **fields))
        await talk.until(lambda: run.is_over or any("output" in event["type"] for event in run.events))
        return run

    plain = await start(proposals.LONG)
    await talk.steer(plain, proposals.SHORTER, "plain")
    await talk.settle()
    calling = await start(proposals.ASSESS, tools=[proposals.TOOL])
    await talk.steer(calling, proposals.LAST, "before the call")
    await talk.settle()
    if calling.open_calls and calling.terminal is not None:
        await talk.steer(calling, proposals.SHORTER, "pending")
        await talk.settle()
        outputs = [answer_call(call) for call in calling.open_calls]
        fields = {"previous_response_id": calling.id, "tools": [proposals.TOOL]}
        await talk.create(stage.build_body(**fields, input=outputs), "answer")
        await talk.settle()
    twice = await start(proposals.LONG)
    await talk.steer(twice, proposals.SHORTER, "first of two")
    await talk.steer(twice, proposals.LAST, "second of two")
    await talk.settle()
    last = next(run for run in reversed(talk.dialogue.runs) if run.id is not None)
    await talk.steer(last, proposals.LAST, "late")
    await talk.settle()
    has_waited = any(event["type"] == "response.steer.pending" for run in talk.dialogue.runs for event in run.events)
    return _judge(talk.dialogue.runs) or (None if has_waited else f"{_NO_CALL}, so no steer had to wait for its output")


async def _play_compaction(stage: Stage) -> str | None:
    """Let a response begin with more than it may hold."""
    talk = await stage.connect()
    long = stage.build_tree_body(proposals.LONG)
    first = await talk.converse(await talk.create(long), long, each_at_once)
    management = [{"type": "compaction", "compact_threshold": _FEW_TOKENS}]
    body = stage.build_tree_body(proposals.LAST, context_management=management)
    await talk.converse(await talk.create({**body, "previous_response_id": first.id}), body, each_at_once)
    runs = talk.dialogue.runs
    has_compacted = any(item.get("type") == "compaction" for run in runs for _, item in run.items())
    return _judge(runs) or (None if has_compacted else "nothing was compacted")


async def _play_nested(stage: Stage) -> str | None:
    _, runs = await _play_tree(stage, proposals.NESTED, each_at_once)
    deepest = max((read_agent(event).count("/") for run in runs for event in run.events), default=0)
    return _judge(runs) or (None if deepest > 2 else "no agent had an agent of its own below the root")


async def _play_interrupt(stage: Stage) -> str | None:
    _, runs = await _play_tree(stage, proposals.INTERRUPTED, each_at_once)
    actions = {item.get("action") for run in runs for _, item in run.items()}
    missing = {"interrupt_agent", "followup_task"} - actions
    return _judge(runs) or (f"the model did not use {' and '.join(sorted(missing))}" if missing else None)


def _judge(runs: Sequence[Run], *, calls: int = 0) -> str | None:
    for run in runs:
        if run.error is not None:
            return f"a create was refused: {(run.error.get('error') or {}).get('message')}"
        if run.terminal is not None and run.terminal["type"] == "response.failed":
            return f"a response failed: {(run.response.get('error') or {}).get('message')}"
    found = sum(len(run.calls) for run in runs)
    return None if found >= calls else f"the model called {found} functions instead of {calls}"


SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType(
    {
        scenario.name: scenario
        for scenario in (
            Scenario("R1", "two children, outputs at once", _play_immediate),
            Scenario("R2", "an output after the response has ended, then in a create", _play_delayed),
            Scenario("R3", "several outputs in one inject", _play_several),
            Scenario("R4", "two injects back to back for two agents", _play_back_to_back),
            Scenario("R5", "an output twice in one inject", _play_duplicate_in_batch),
            Scenario("R6", "a valid and an unknown output in one inject, then the valid one", _play_unknown_in_batch),
            Scenario("R7", "the same inject twice", _play_repeated),
            Scenario("R8", "an inject for an unknown response", _play_unknown_response),
            Scenario("R9", "a malformed inject", _play_malformed),
            Scenario("R10", "three creates, each going on from the one before", _play_chained),
            Scenario("R11", "two trees on two lanes", _play_lanes),
            Scenario("R12", "a create with store false", _play_unstored),
            Scenario("R13", "left in the middle, and gone on from the parent", _play_reconnect),
            Scenario("R14", "the same by HTTP, streamed and not", _play_http),
            Scenario("R15", "steering: writing, calling, waiting, twice, late", _play_steering),
            Scenario("R16", "compaction of more than 200 tokens", _play_compaction),
            Scenario("R17", "an agent below an agent", _play_nested),
            Scenario("R18", "an interrupt and a follow-up", _play_interrupt),
        )
    }
)
