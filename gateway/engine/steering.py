"""How a response ends earlier because its user has something to add, and which responses can be steered."""

from collections.abc import Collection

from gateway.engine.plan import Plan
from gateway.protocol import upstream_events as up
from gateway.protocol.announcer import Round
from gateway.protocol.call_slots import CallSlot
from gateway.protocol.events import Event
from gateway.protocol.turn import Turn

STEERED = "steered"
"""Why a response is incomplete whose user wants to go on in another way."""


class ItemCut:
    """Takes the events of a round until an item begins behind one that is whole; there it ends the round.

    A round that calls a tool is not cut: nobody could answer the call, or it would be run for nothing.

    Args:
        turn: the response.

    Attributes:
        made: whether a round was cut.
    """

    __slots__ = ("_turn", "made")

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self.made = False

    def __call__(self, round_: Round, event: up.UpstreamEvent) -> list[Event]:
        """Take one engine event, as `Turn.ingest`."""
        if not isinstance(event, up.ItemAdded) or not _is_behind(round_, event):
            return self._turn.ingest(round_, event)
        self.made = True
        told = self._turn.ingest(round_, up.Completed())
        self._turn.cut_short(STEERED)
        return told


def explain_unsteerable(plan: Plan, models: Collection[str]) -> str | None:
    """Return why a response cannot be steered, None if it can.

    Args:
        plan: the response.
        models: the models whose responses can be; empty for all.
    """
    request = plan.request
    if plan.tree is not None:
        return "A response that several agents make cannot be steered; inject what its tools return instead."
    if request.conversation_id is not None:
        return "A response that adds to a conversation cannot be steered; send the next message when it has ended."
    if request.threshold is not None or request.compacts:
        return "A response whose history is compacted cannot be steered; send it without 'context_management'."
    if not request.generate:
        return "A warm-up cannot be steered: no model is asked."
    if models and request.model not in models:
        return "Responses of this model cannot be steered here; see [websocket.steer] models."
    return None


def _is_behind(round_: Round, event: up.ItemAdded) -> bool:
    """Whether an item begins behind others that are whole, none of which is a call."""
    last = round_.last
    if last is None or not last.closed or isinstance(last, CallSlot) or event.output_index in round_.by_index:
        return False
    return not any(isinstance(slot, CallSlot) for slot in round_.slots)
