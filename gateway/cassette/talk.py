"""One recorded connection as a scenario uses it: sends, reads, and knows what is still open."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from gateway.cassette.bounds import Bounds
from gateway.cassette.dialogue import Call, Control, Dialogue, Event, Run
from gateway.cassette.proposals import answer_call
from gateway.cassette.recorder import BoundReached
from gateway.cassette.shapes import is_event
from gateway.cassette.socket import Socket

Choose = Callable[[Run, Sequence[Call]], Iterable[Sequence[Call]]]


class ScenarioFailed(Exception):
    """A scenario could not be played to its end; the text says where it stopped."""


class PeerClosed(ScenarioFailed):
    """The server ended the connection while something was still open."""


class StepTimeout(ScenarioFailed):
    """A step took longer than it may."""


class Talk:
    """Drives one connection. There is one reader, the scenario itself, so what is sent when depends on events alone.

    Args:
        socket: connected.
        bounds: of steps and counts.
        tell: told of each thing worth showing, one line each.
        dialogue: what was said on it; knows the responses of earlier connections.

    Attributes:
        observe: told of each event, and of the response it belongs to.
    """

    def __init__(self, socket: Socket, bounds: Bounds, tell: Callable[[str], None], dialogue: Dialogue) -> None:
        self.socket = socket
        self.dialogue = dialogue
        self.observe: Callable[[Event, Run | None], None] = lambda _event, _run: None
        self._bounds = bounds
        self._tell = tell
        self._submitted: set[str] = set()
        self._creates = 0
        self._controls = 0
        self._renew()

    def _renew(self) -> None:
        self._deadline = asyncio.get_running_loop().time() + self._bounds.step_seconds

    async def create(self, body: Event, note: str | None = None) -> Run:
        """Send `response.create`."""
        await self.send({"type": "response.create", **body}, note)
        return self.dialogue.runs[-1]

    async def inject(self, run: Run, items: Sequence[Event], note: str | None = None) -> Control:
        """Send `response.inject`, as soon as no more outcomes are awaited than may be."""
        while len(run.waiting) >= self._bounds.outstanding:
            await self.next()
        self._submitted.update(str(item.get("call_id")) for item in items)
        await self.send({"type": "response.inject", "response_id": run.id, "input": list(items)}, note)
        return run.injects[-1]

    async def steer(self, run: Run, text: str, note: str | None = None) -> Control:
        """Send `response.steer`."""
        await self.send({"type": "response.steer", "previous_response_id": run.id, "input": text}, note)
        return run.steers[-1]

    async def send(self, event: Event, note: str | None = None) -> None:
        """Send any message; after a create, what comes next has the time of one step.

        Raises:
            BoundReached: as many creates, or injects of the last create, have been sent as may be.
        """
        self._count(event.get("type"))
        self.dialogue.send(event)
        await self.socket.send_text(msgspec.json.encode(event).decode(), note)
        self._tell(_describe_sent(event, note))

    async def next(self, within: float | None = None) -> Event:
        """Return the next event.

        Args:
            within: seconds, when less time is left for it than the step has.

        Raises:
            PeerClosed: there is none.
            StepTimeout: none came in the time of this step.
            ScenarioFailed: it is no JSON object.
        """
        try:
            async with asyncio.timeout_at(self._deadline), asyncio.timeout(within):
                text = await self.socket.receive()
        except TimeoutError:
            raise StepTimeout(f"the step took longer than {self._bounds.step_seconds:g} seconds") from None
        if text is None:
            raise PeerClosed("the server closed the connection")
        try:
            event = msgspec.json.decode(text, type=dict[str, Any])
        except (msgspec.DecodeError, RecursionError):
            raise ScenarioFailed("the server sent a message that is no JSON object") from None
        self.observe(event, self.dialogue.receive(event))
        shown = _describe_received(event)
        if shown:
            self._tell(shown)
        return event

    async def until(self, is_reached: Callable[[], object]) -> None:
        """Read until something is so."""
        while not is_reached():
            await self.next()

    async def settle(self) -> None:
        """Read until every response has ended and every inject and steer has its outcome."""
        await self.until(lambda: self.dialogue.is_settled)

    async def answer(self, run: Run, choose: Choose, note: str | None = None) -> None:
        """Inject outputs as `choose` tells, until the response has ended and all injects have their outcome.

        Args:
            run: whose calls are answered.
            choose: returns which of the calls that were not yet answered go into an inject now, batch by batch.
            note: of each inject.
        """
        while True:
            for batch in choose(run, [call for call in run.open_calls if call.call_id not in self._submitted]):
                await self.inject(run, [answer_call(call) for call in batch], note)
            if run.is_over and not run.waiting:
                return
            await self.next()

    async def converse(self, run: Run, settings: Event, choose: Choose) -> Run:
        """Answer until a response needs no more; what came too late goes into a new create on the same connection.

        Args:
            run: the first response.
            settings: of the creates that follow.
            choose: as for `answer`.

        Returns:
            The last response.
        """
        while True:
            await self.answer(run, choose)
            left = self.list_left(run)
            if not left or run.response.get("status") != "completed":
                return run
            outputs = [answer_call(call) for call in left]
            run = await self.create({**settings, "previous_response_id": run.id, "input": outputs}, "fallback")

    def list_left(self, run: Run) -> list[Call]:
        """Return the calls that were never answered, or whose answer came back because the response had ended."""
        returned = {
            call_id
            for inject in run.injects
            if ((inject.outcome or {}).get("error") or {}).get("code") == "response_already_completed"
            for call_id in inject.call_ids
        }
        return [call for call in run.open_calls if call.call_id not in self._submitted or call.call_id in returned]

    async def close(self) -> None:
        """Say goodbye."""
        await self.socket.close()

    def _count(self, kind: object) -> None:
        if kind == "response.create":
            if self._creates >= self._bounds.max_creates:
                raise BoundReached(f"the scenario has sent {self._creates} creates; raise --max-creates")
            self._creates += 1
            self._controls = 0
            self._renew()
        elif kind in {"response.inject", "response.steer"}:
            if self._controls >= self._bounds.max_injects:
                raise BoundReached(f"{self._controls} injects have answered one create; raise --max-injects")
            self._controls += 1


def each_at_once(_run: Run, calls: Sequence[Call]) -> Iterable[Sequence[Call]]:
    """Choose every call at once, each for an inject of its own."""
    return [[call] for call in calls]


def _describe_sent(event: Event, note: str | None) -> str:
    kind = str(event.get("type"))
    shown = f" ({note})" if note else ""
    if kind == "response.inject":
        items = event.get("input")
        return f"> {kind} with {len(items) if isinstance(items, list) else 'no'} output(s){shown}"
    return f"> {kind}{shown}"


def _describe_received(event: Event) -> str | None:
    if not is_event(event):
        return "< what is no event"
    kind = str(event["type"])
    if kind == "response.output_item.done":
        item = event.get("item") or {}
        agent = (item.get("agent") or {}).get("agent_name", "")
        what = item.get("action") or item.get("name") or ""
        return f"< {item.get('type')} {what} {agent}".replace("  ", " ").rstrip()
    if kind == "error" or "inject" in kind or "steer" in kind:
        error = event.get("error")
        code = (error.get("code") or error.get("type")) if isinstance(error, dict) else None
        return f"< {kind}" + (f" {code}" if code else "")
    if kind in {"response.created", "response.completed", "response.failed", "response.incomplete"}:
        return f"< {kind}"
    return None
