"""What a user adds while an answer is being made: a steer waits at its response until a successor takes it.

Pure: it says what becomes of each steer, and the connection tells it. A steer has exactly one fate. It is applied when
a response that begins with it has been created, or it fails, and the client hears why.
"""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any

from msgspec import UNSET, Struct, to_builtins

from gateway.protocol import events
from gateway.protocol.errors import INVALID_REQUEST, InvalidRequest
from gateway.protocol.inputs import read_input
from gateway.protocol.items import CLIENT_CALLS, CustomToolCall, FunctionCall, OutputItem

_CALLS = (FunctionCall, CustomToolCall)
_APPROVAL = "mcp_approval_request"
_MESSAGE_FIELDS = frozenset({"type", "role", "content"})
_PARTS = ("input_text", "input_image", "input_file")


class SteerPhase(StrEnum):
    """Where a response stands for those who steer it."""

    RUNNING = "running"
    ENDING = "ending"
    WAITING = "waiting"
    PASSING = "passing"
    COMPLETED = "completed"
    INACTIVE = "inactive"


STEER_MOVES: dict[SteerPhase, frozenset[SteerPhase]] = {
    SteerPhase.RUNNING: frozenset({SteerPhase.ENDING}),
    SteerPhase.ENDING: frozenset(
        {SteerPhase.WAITING, SteerPhase.PASSING, SteerPhase.COMPLETED, SteerPhase.INACTIVE},
    ),
    SteerPhase.WAITING: frozenset({SteerPhase.PASSING, SteerPhase.INACTIVE}),
    SteerPhase.PASSING: frozenset({SteerPhase.WAITING, SteerPhase.COMPLETED, SteerPhase.INACTIVE}),
    SteerPhase.COMPLETED: frozenset(),
    SteerPhase.INACTIVE: frozenset(),
}
"""From where a response may go to where; a steer is taken while it runs or waits, and held while it is ending."""


class SteerRefusal(Exception):
    """Why a steer fails.

    Attributes:
        code: as the client is told.
        message: in words.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class Steer(Struct, frozen=True, kw_only=True):
    """One accepted steer.

    Attributes:
        id: its id.
        target: the response it was sent to.
        given: its input, as it was sent.
        items: the same as input items.
        size: bytes of its frame.
    """

    id: str
    target: str
    given: Any
    items: Sequence[Mapping[str, Any]]
    size: int

    @property
    def accepted(self) -> events.SteerAccepted:
        """What a client is told when it is accepted."""
        return events.SteerAccepted(steer=events.Steer(id=self.id, previous_response_id=self.target))

    def wait_for(self, required: Sequence[Mapping[str, Any]]) -> events.SteerPending:
        """Return what a client is told of a steer that waits for its own outputs."""
        steer = events.Steer(id=self.id, previous_response_id=self.target)
        return events.SteerPending(steer=steer, required_input=list(required))

    def fail(self, refusal: SteerRefusal) -> events.SteerFailed:
        """Return what a client is told of a steer that was accepted and fails."""
        return fail_steer(self.target, self.given, refusal, steer_id=self.id)


def fail_steer(target: str, given: Any, refusal: SteerRefusal, *, steer_id: str | None = None) -> events.SteerFailed:
    """Return what a client is told of a steer that fails; without an id it was never accepted."""
    return events.SteerFailed(
        steer=events.Steer(id=UNSET if steer_id is None else steer_id, previous_response_id=target, input=given),
        error=events.ControlError(type=INVALID_REQUEST, code=refusal.code, message=refusal.message),
    )


class SteerQueue:
    """The steers of one response, in the order they came.

    Attributes:
        phase: where the response stands.
        required: stubs of the outputs it waits for, once it has ended.
    """

    __slots__ = ("_completed", "_queue", "_told", "phase", "required")

    def __init__(self) -> None:
        self.phase = SteerPhase.RUNNING
        self.required: Sequence[Mapping[str, Any]] = ()
        self._queue: list[Steer] = []
        self._told: set[str] = set()
        self._completed = False

    @property
    def waiting(self) -> Sequence[Steer]:
        """The steers without a fate."""
        return self._queue

    @property
    def bytes(self) -> int:
        """Bytes of these."""
        return sum([steer.size for steer in self._queue])

    def check(self, response_id: str) -> None:
        """Tell whether the response takes steers at all.

        Raises:
            SteerRefusal: it has ended, or something follows it already.
        """
        if self.phase in (SteerPhase.PASSING, SteerPhase.COMPLETED):
            raise SteerRefusal("response_already_completed", f"Response '{response_id}' has already completed.")
        if self.phase is SteerPhase.INACTIVE:
            raise SteerRefusal("response_not_active", f"Response '{response_id}' is no longer active.")

    def add(self, steer: Steer) -> None:
        """Take one more."""
        self._queue.append(steer)

    # ------------------------------------------------------------ the end of the response

    def close(self) -> None:
        """The response goes to its end: what comes now has to wait until that is known."""
        self._move(SteerPhase.ENDING)

    def end(self, status: str, required: Sequence[Mapping[str, Any]]) -> Sequence[Steer]:
        """Say how the response ended.

        It then waits for outputs, passes its steers to a successor, or is over.

        Args:
            status: its status.
            required: stubs of the outputs it waits for.

        Returns:
            The steers that fail, because it has not ended well.
        """
        if self.phase is SteerPhase.RUNNING:
            self.close()
        self._completed = status == "completed"
        if not self._completed and status != "incomplete":
            self._move(SteerPhase.INACTIVE)
            return self._empty()
        self.required = required
        if required and (self._queue or self._completed):
            self._move(SteerPhase.WAITING)
        elif self._queue:
            self._move(SteerPhase.PASSING)
        else:
            self._move(self._over)
        return ()

    def list_untold(self) -> list[Steer]:
        """Return the steers of which the client has to be told that they wait; each is returned once."""
        untold = [steer for steer in self._queue if steer.id not in self._told]
        self._told.update(steer.id for steer in untold)
        return untold

    # ------------------------------------------------------------ the successor

    def offer(self) -> list[dict[str, Any]]:
        """Return the input a successor begins with, which is being made from here on."""
        if self.phase is SteerPhase.WAITING:
            self._move(SteerPhase.PASSING)
        return [dict(item) for steer in self._queue for item in steer.items]

    def apply(self) -> Sequence[Steer]:
        """The successor was created: return the steers it has taken."""
        self._move(SteerPhase.COMPLETED)
        return self._empty()

    def take_back(self) -> None:
        """The client's own successor was refused: the steers go on waiting."""
        self._move(SteerPhase.WAITING)

    def give_up(self) -> Sequence[Steer]:
        """Nothing will take the steers any more: return them, which fail."""
        self._move(SteerPhase.INACTIVE if self.phase is SteerPhase.WAITING else self._over)
        return self._empty()

    @property
    def _over(self) -> SteerPhase:
        return SteerPhase.COMPLETED if self._completed else SteerPhase.INACTIVE

    def _empty(self) -> Sequence[Steer]:
        queue, self._queue = self._queue, []
        self._told.clear()
        return queue

    def _move(self, to: SteerPhase) -> None:
        if to not in STEER_MOVES[self.phase]:
            raise RuntimeError(f"steers cannot go from {self.phase.value} to {to.value}")
        self.phase = to


# ---------------------------------------------------------------- what is sent, and what is waited for


def read_steer(given: Any, *, stray: str | None, max_items: int, remote_images: bool) -> list[dict[str, Any]]:
    """Return the input of a steer as items.

    Args:
        given: its `input`: a string, or messages of the user.
        stray: a member of its frame that it must not have, if it has one.
        max_items: the most messages.
        remote_images: whether http(s) URLs of images and files are let through.

    Raises:
        SteerRefusal: `invalid_input`, with what is wrong and how to mend it.
    """
    if stray is not None:
        raise _refuse_input(f"'{stray[:64]}' does not belong here; send 'previous_response_id' and 'input' alone.")
    if not isinstance(given, str | list) or not given:
        raise _refuse_input("'input' must be a text, or a list of messages of the user; neither may be empty.")
    if isinstance(given, list):
        for index, item in enumerate(given):
            _check_message(item, f"input[{index}]")
    try:
        return read_input(given, max_items=max_items, remote_images=remote_images)
    except InvalidRequest as error:
        raise _refuse_input(error.message) from None


def list_required(output: Iterable[OutputItem]) -> list[dict[str, Any]]:
    """Return a stub of each input that a response's output asks its client for, in the order of the calls."""
    stubs = []
    for told in output:
        item: Any = to_builtins(told) if type(told) in _CALLS else told
        if not isinstance(item, dict):
            continue
        kind = item.get("type")
        if kind == _APPROVAL:
            stubs.append({"type": "mcp_approval_response", "approval_request_id": item.get("id")})
        elif isinstance(kind, str) and kind in CLIENT_CALLS and _is_pending(item):
            stub = {"type": CLIENT_CALLS[kind], "call_id": item.get("call_id")}
            if kind == "function_call":
                stub["name"] = item.get("name")
            elif kind == "tool_search_call":
                stub["execution"] = "client"
            stubs.append(stub)
    return stubs


def _is_pending(item: Mapping[str, Any]) -> bool:
    return item.get("status") != "incomplete" and bool(item.get("call_id"))


def _check_message(item: Any, path: str) -> None:
    if not isinstance(item, dict) or item.get("type", "message") != "message" or item.get("role") != "user":
        raise _refuse_input(f"'{path}' must be a message with the role 'user'; nothing else can steer.")
    stray = next((name for name in item if name not in _MESSAGE_FIELDS), None)
    if stray is not None:
        raise _refuse_input(f"'{path}' may have type, role and content only, not '{stray[:64]}'.")
    content = item.get("content")
    if not content:
        raise _refuse_input(f"'{path}.content' must be a text or a list of parts, and not empty.")
    for index, part in enumerate(content if isinstance(content, list) else ()):
        if not isinstance(part, dict) or part.get("type") not in _PARTS:
            raise _refuse_input(f"'{path}.content[{index}].type' must be one of {', '.join(_PARTS)}.")


def _refuse_input(message: str) -> SteerRefusal:
    return SteerRefusal("invalid_input", message)
