"""A response of a tree of agents, as its client sees it."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import UNSET

from gateway.protocol import upstream_events as up
from gateway.protocol.agents.action_slots import MESSAGE, OUTPUT, ActionOutputSlot, ActionSlot, MailSlot, Seal
from gateway.protocol.agents.mail import Mail
from gateway.protocol.agents.paths import ROOT
from gateway.protocol.agents.tree_items import TreeItems
from gateway.protocol.agents.tree_round import TreeRound
from gateway.protocol.announcer import Round
from gateway.protocol.carriage import Carriage
from gateway.protocol.compaction import COMPACTION
from gateway.protocol.compaction_slot import CompactionSlot
from gateway.protocol.errors import GatewayError
from gateway.protocol.events import Event
from gateway.protocol.hosted import HostedTool
from gateway.protocol.slots import Slot
from gateway.protocol.turn import Turn


class TreeTurn(Turn):
    """A response whose rounds belong to several agents, of which any number is open at once.

    Every event of an item, and every item, names its agent. What the engine of an agent calls a function is an action
    where `host_actions` says so. An agent other than the root that ran out of tokens does not make the response
    incomplete.

    Args:
        options: as those of any turn.
        seal: makes a token of what agents write to each other; None shows it to the client.
    """

    ITEMS = TreeItems

    _items: TreeItems

    def __init__(self, *options: Any, seal: Seal | None, **more: Any) -> None:
        super().__init__(*options, **more)
        self._seal = seal

    def open_round(self, agent: str = ROOT) -> TreeRound:
        """Return a new round: one upstream inference of one agent."""
        return TreeRound(agent)

    def ingest(self, round_: Round, event: up.UpstreamEvent) -> list[Event]:
        """Take one engine event, as any turn does.

        Raises:
            UpstreamError: the engine reported a failure. What is owed of the round comes with `drop_open`, or with
                `fail`.
            ResourceLimitExceeded: the turn would retain more than `max_retained_bytes`.
        """
        try:
            out = super().ingest(round_, event)
        except GatewayError:
            _attribute(round_, self._owed)
            raise
        return _attribute(round_, out)

    def ingest_body(self, round_: Round, body: Any) -> list[Event]:
        """Take a whole JSON answer.

        Raises:
            UpstreamError: it is not a finished response object, or one that failed.
            ResourceLimitExceeded: as `ingest`.
        """
        try:
            out = super().ingest_body(round_, body)
        except GatewayError:
            _attribute(round_, self._owed)
            raise
        return _attribute(round_, out)

    # ------------------------------------------------------------ actions and mail

    def host_actions(self, names: Iterable[str]) -> None:
        """Take the engine's calls of these functions as actions."""
        self._items.naming.actions = frozenset(names)

    def carry_by(self, carriage: Carriage, hosted: Iterable[HostedTool]) -> None:
        """Take the engine's calls by other names from now on: more tools have become known.

        Args:
            carriage: names of carried tools.
            hosted: tools that the gateway runs.
        """
        self._items.naming.carry_by(carriage)
        self.host(hosted, None)

    def conclude_action(
        self, round_: Round, slot: ActionSlot, text: str | None, messages: Sequence[Mail] = ()
    ) -> list[Event]:
        """Take what came of an action and return the client's events, numbered.

        They tell the call, then the messages, then the output, and then what stood behind the call, as far as nothing
        before it is awaited.

        Args:
            round_: the round of the call.
            slot: the call.
            text: its output; None if it has none yet: `tell_action_output` brings it.
            messages: what was delivered by it.

        Raises:
            ResourceLimitExceeded: as `ingest`.
        """
        slot.conclude(self._seal)
        behind: list[Slot] = [*self._read_mail(messages)]
        if text is not None:
            behind.append(self._answer(slot.call_id, slot.action, text))
        return self._tell(round_, self._items.follow(round_, slot, behind))

    def tell_action_output(self, agent: str, call_id: str, action: str, text: str) -> list[Event]:
        """Take the output of an action that was concluded without one and return the client's events, numbered.

        Raises:
            ResourceLimitExceeded: as `ingest`.
        """
        return self._open(agent, [self._answer(call_id, action, text)])

    def tell_messages(self, messages: Iterable[Mail]) -> list[Event]:
        """Take mail that was delivered and return the client's events, numbered.

        Raises:
            ResourceLimitExceeded: as `ingest`.
        """
        return self._open(ROOT, self._read_mail(messages))

    def tell_compaction(self, token: str, agent: str = ROOT) -> list[Event]:
        """Take the sealed note of an agent's history and return the client's events, numbered.

        Raises:
            ResourceLimitExceeded: as `ingest`; nothing was taken.
        """
        return self._open(agent, [CompactionSlot(self._items.naming.mint(COMPACTION), token)])

    # ------------------------------------------------------------ rounds that no engine ends

    def drop_open(self, round_: Round) -> list[Event]:
        """End a round that was interrupted, or has failed while the response goes on, and return what is owed of it.

        Items that are done stay; the others are dropped: the client never hears that they are done, and finds them in
        no output. `round_.slots` holds those that stay.
        """
        self._owed += self._items.leave(round_)
        return self._tell(round_, self._hand_over())

    # ------------------------------------------------------------ inside

    def _tell(self, round_: Round, out: list[Event]) -> list[Event]:
        return self._numbers.give(_attribute(round_, out))

    def _open(self, agent: str, slots: Iterable[Slot]) -> list[Event]:
        round_ = self.open_round(agent)
        return self._tell(round_, self._items.open(round_, slots))

    def _answer(self, call_id: str, action: str, text: str) -> ActionOutputSlot:
        return ActionOutputSlot(self._items.naming.mint(OUTPUT), call_id, action, text)

    def _read_mail(self, messages: Iterable[Mail]) -> list[MailSlot]:
        return [MailSlot(self._items.naming.mint(MESSAGE), mail, self._seal) for mail in messages]

    def _end_round(self, round_: Round, event: up.Ended) -> list[Event]:
        reason = self._reason
        out = super()._end_round(round_, event)
        if round_.agent != ROOT:
            self._reason = reason
        return out


def _attribute(round_: Round, out: list[Event]) -> list[Event]:
    """Name the agent of a round in its events, where they do not name one."""
    assert isinstance(round_, TreeRound)
    for event in out:
        if event.agent is UNSET:
            event.agent = round_.ref
    return out
