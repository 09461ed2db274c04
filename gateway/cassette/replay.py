"""Plays a recording's client again: each message when what it followed has been reached, whatever time that takes."""

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct

from gateway.cassette.checks import Finding, check_sessions
from gateway.cassette.comparison import Depth, compare_sessions
from gateway.cassette.dialogue import Run
from gateway.cassette.format import Cassette
from gateway.cassette.milestones import Milestones, Plan, Step, plan_session, replace_ids
from gateway.cassette.recorder import Sink
from gateway.cassette.recording import run_recorded, start_recorder
from gateway.cassette.stage import Settings, Stage
from gateway.cassette.talk import PeerClosed, StepTimeout, Talk
from gateway.cassette.transcript import Session, parse_event, read_sessions


class Replayed(Struct, frozen=True):
    """What a replay came to.

    Attributes:
        failure: why it ended early, if it did.
        sent: how many messages were sent.
        unreached: what a message waited for in vain.
    """

    failure: str | None
    sent: int
    unreached: Sequence[str]


class Replay:
    """Replays one recording on a stage.

    Args:
        cassette: the recording.
        stage: the server, and the recording of the replay.
    """

    def __init__(self, cassette: Cassette, stage: Stage) -> None:
        self._sessions = read_sessions(cassette.records)
        self._stage = stage
        self._ids: dict[str, str] = {}
        self._known: dict[str, Run] = {}
        self.sent = 0
        self.unreached: list[str] = []

    async def run(self) -> None:
        """Play every session, one after the other.

        Raises:
            TransportFailed: a connection could not be made, or broke.
            ScenarioFailed: the server left or took too long.
        """
        for session in self._sessions:
            if session.kind == "http":
                await self._play_exchange(session)
            elif session.messages:
                await self._play_session(session)
            self._known.update(session.dialogue.known)

    async def _play_exchange(self, session: Session) -> None:
        body = parse_event(session.request[1])
        if body is None:
            return
        run = await self._stage.post(self._translate(body))
        self.sent += 1
        for before, after in zip(session.dialogue.runs, [run], strict=False):
            self._ids.update({before.id: after.id} if before.id and after.id else {})
            self._ids.update(zip(before.calls, after.calls, strict=False))

    async def _play_session(self, session: Session) -> None:
        plan = plan_session(session, self._known)
        talk = await self._stage.connect()
        milestones = Milestones(talk.dialogue)

        def observe(event: dict[str, Any], run: Run | None) -> None:
            milestones.note(event, run)
            self._ids.update({plan.ids[name]: id for name, id in milestones.ids.items() if name in plan.ids})

        talk.observe = observe
        for step in plan.steps:
            if not await self._reach(talk, milestones, step.needs):
                self.unreached.append(_describe(step, milestones))
                break
            await self._send(talk, step)
        else:
            await self._end(talk, milestones, session, plan)
        self._stage.remember(talk)

    async def _send(self, talk: Talk, step: Step) -> None:
        event = step.message.event
        if event is None:
            await talk.socket.send_text(step.message.text, step.message.note)
        else:
            await talk.send(self._translate(event), step.message.note)
        self.sent += 1

    async def _reach(self, talk: Talk, milestones: Milestones, needs: frozenset[str]) -> bool:
        """Read until all is reached; what can no longer come is awaited no longer than a goodbye."""
        while not needs <= milestones.reached:
            within = self._stage.settings.bounds.close_seconds if talk.dialogue.is_settled else None
            try:
                await talk.next(within)
            except (PeerClosed, StepTimeout):
                return False
        return True

    async def _end(self, talk: Talk, milestones: Milestones, session: Session, plan: Plan) -> None:
        close = session.close
        if close is not None and close.by == "server":
            try:
                await talk.until(lambda: False)
            except PeerClosed:
                return
        if close is not None and close.by == "client" and not close.clean:
            await self._reach(talk, milestones, plan.ends)
            talk.socket.abort(by="client")
            return
        if session.dialogue.is_settled:
            await talk.settle()
        await talk.close()

    def _translate(self, event: dict[str, Any]) -> dict[str, Any]:
        translated: dict[str, Any] = replace_ids(event, self._ids)
        if self._stage.settings.model is not None and "model" in translated:
            translated["model"] = self._stage.settings.model
        return translated


async def replay_cassette(
    cassette: Cassette,
    settings: Settings,
    sink: Sink,
    *,
    provider: str = "gateway",
    tell: Callable[[str], None] = lambda _line: None,
) -> Replayed:
    """Replay a recording and record that.

    Raises:
        RecordingFailed: the recording of the replay could not be written.
    """
    recorder = start_recorder(settings, sink, provider=provider, scenario=cassette.head.scenario)
    stage = Stage(settings, recorder, tell)
    replay = Replay(cassette, stage)
    _, failure = await run_recorded(stage, replay.run())
    return Replayed(failure, replay.sent, replay.unreached)


def judge_replay(recorded: Cassette, replayed: Cassette, result: Replayed, depth: Depth) -> list[Finding]:
    """Return what the assertions say of a replay, and how it differs from the recording.

    Args:
        recorded: what was replayed.
        replayed: the recording of the replay.
        result: how it went.
        depth: what is compared.
    """
    before, after = read_sessions(recorded.records), read_sessions(replayed.records)
    findings = [finding for finding in check_sessions(after, recorded.head.scenario) if finding.name != "A11"]
    title = "each message is sent when what it followed has been reached"
    findings.append(Finding("A11", title, result.sent + len(result.unreached), result.unreached))
    if depth != "none":
        differences = compare_sessions(before, after, depth)
        findings.append(Finding("=", f"{depth} as recorded", len(before), differences))
    return findings


def _describe(step: Step, milestones: Milestones) -> str:
    missing = sorted(step.needs - milestones.reached)
    kind = (step.message.event or {}).get("type", "a message")
    note = f" ({step.message.note})" if step.message.note else ""
    return f"{kind}{note} was not sent, for this was not reached: {'; '.join(missing)}"
