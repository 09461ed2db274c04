"""What the client of one response has been told, what waits to be told, and what is told without being asked."""

import asyncio
from collections.abc import Iterable

from gateway.engine.delivery import Channel, EncodedEvent
from gateway.engine.outbox import Outbox
from gateway.engine.progress import Progress
from gateway.protocol.announcer import Round
from gateway.protocol.errors import ResourceLimitExceeded
from gateway.protocol.events import Event
from gateway.protocol.turn import Turn


class Telling:
    """The client's side of one run.

    Args:
        turn: makes the events.
        outbox: keeps them.
        progress: notices silence.

    Attributes:
        outbox: what no batch has taken yet.
        progress: notices silence.
        channel: where events go; None where the answer is one body.
        accepted: whether the upstream has accepted a call, so that a failure belongs into the stream.
        round: the round whose items are being told.
        early: a batch that somebody else has put into the channel, which is for one after the other.
        takes_asides: whether somebody else may tell events: from the first one on, until the last is measured.
        steered: whether the response is to end where the model would be asked again.
    """

    __slots__ = ("_turn", "accepted", "channel", "early", "outbox", "progress", "round", "steered", "takes_asides")

    def __init__(self, turn: Turn, outbox: Outbox, progress: Progress) -> None:
        self._turn = turn
        self.outbox = outbox
        self.progress = progress
        self.channel: Channel | None = None
        self.accepted = False
        self.round: Round = turn.open_round()
        self.early: asyncio.Task[None] | None = None
        self.takes_asides = False
        self.steered = False

    def keep(self, out: Iterable[Event]) -> None:
        """Keep events for the next batch.

        Raises:
            ResourceLimitExceeded: one cannot be sent.
        """
        if self.channel is None:
            return
        for event in out:
            self.outbox.add(event)

    def keep_owed(self, owed: Iterable[Event]) -> None:
        """Keep events that come before a failure, as far as they can be sent."""
        for event in owed:
            try:
                self.outbox.add(event)
            except ResourceLimitExceeded:
                return

    async def send(self) -> None:
        """Send what was kept between the reads of an upstream, if the client has been told of the response."""
        channel = self.channel
        if channel is None or not self.outbox or not (self.accepted or channel.opened):
            return
        if self.progress.looks:
            self.progress.note()
        await self.settle_early()
        self.outbox.pause()
        batch = self.outbox.take()
        if batch and not channel.write(batch):
            await channel.put(batch)

    def begin_early(self) -> None:
        """Send what waits, although the upstream has not accepted the call yet."""
        channel = self.channel
        if channel is not None and not channel.opened and self.outbox:
            self.early = asyncio.create_task(self._put(channel, self.outbox.take()))

    def tell_aside(self, event: Event) -> bool:
        """Tell an event that no round has made, as soon as the client takes it; False, and nothing told, at the end.

        Raises:
            ResourceLimitExceeded: it cannot be sent.
        """
        channel = self.channel
        if channel is None or not self.takes_asides:
            return False
        self.keep(self._turn.tell(event))
        if channel.opened and (self.early is None or self.early.done()):
            self._send_aside(channel)
        return True

    def asides_sent(self) -> asyncio.Future[None]:
        """Return what ends when all that was told aside is with the connection."""
        if self.early is not None:
            return asyncio.shield(self.early)
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sent.set_result(None)
        return sent

    def tell_progress(self) -> None:
        """Tell the client again that its response is in progress."""
        channel = self.channel
        if channel is None or not channel.opened or (self.early is not None and not self.early.done()):
            return
        try:
            self.outbox.add(self._turn.repeat_progress())
        except ResourceLimitExceeded:
            return
        self._send_aside(channel)

    async def settle_early(self) -> None:
        """Wait for what a timer has put into the channel."""
        while (early := self.early) is not None:
            # Not awaited itself: who is cancelled here must not take it along.
            await asyncio.wait((early,))
            # Another may have taken its place since it ended.
            if self.early is early:
                self.early = None
            early.result()

    def _send_aside(self, channel: Channel) -> None:
        batch = self.outbox.take()
        if not channel.write(batch):
            self.early = asyncio.create_task(self._put(channel, batch))

    async def _put(self, channel: Channel, batch: list[EncodedEvent]) -> None:
        """Put a batch, and after it what was told aside in the meantime."""
        await channel.put(batch)
        while self.outbox:
            await channel.put(self.outbox.take())
