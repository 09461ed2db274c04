"""What the client of a connection says, from its messages to what they ask for."""

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import TypeAlias

from msgspec import Struct

from gateway.protocol.frames import Frame, FrameError, read_frame, refuse_binary
from gateway.telemetry.metrics import Metrics
from gateway.transport.idle import IdleWatch
from gateway.transport.socket import ClientSocket

Accept: TypeAlias = Callable[[Frame, int], None]
"""Does what a frame of so many bytes asks for, or raises `FrameError`, having done nothing."""

_MESSAGES_AT_ONCE = 64


class FrameRules(Struct, frozen=True, kw_only=True):
    """How the messages of a connection are read.

    Attributes:
        max_depth: deepest nesting.
        default_model: the model of creates that name none.
        injects: whether it takes `response.inject`.
    """

    max_depth: int
    default_model: str | None
    injects: bool


class Intake:
    """Reads the messages of a connection and hands on what they ask for, in their order.

    Args:
        socket: the WebSocket.
        rules: how they are read.
        idle: told of each message.
        metrics: counts them.
    """

    def __init__(self, socket: ClientSocket, rules: FrameRules, idle: IdleWatch, metrics: Metrics) -> None:
        self._socket = socket
        self._rules = rules
        self._idle = idle
        self._metrics = metrics

    async def run(self, accept: Accept, refuse: Callable[[FrameError], Awaitable[None]]) -> None:
        """Read until the connection ends.

        Args:
            accept: does what a frame asks for.
            refuse: tells the client what was refused; nothing is read meanwhile.
        """
        # What comes alone needs no turn of this task; it is taken as if it had had one.
        run: Callable[..., bool] = copy_context().run
        take_at_once = partial(run, self._take_at_once, accept)
        number = 0
        while (message := await self._socket.read(take_at_once)) is not None:
            data = message.encode() if isinstance(message, str) else message
            try:
                if data is message:
                    raise refuse_binary()
                self._take(accept, data)
            except FrameError as refusal:
                self._note(data)
                await refuse(refusal)
            number += 1
            if not number % _MESSAGES_AT_ONCE:
                # What has been held back is there at once, and others want their turn.
                await asyncio.sleep(0)

    def _take_at_once(self, accept: Accept, text: str) -> bool:
        """Take a message in the moment it comes; False, and nothing done, if it is refused, which may take a while."""
        try:
            self._take(accept, text.encode())
        except FrameError:
            return False
        return True

    def _take(self, accept: Accept, data: bytes) -> None:
        rules = self._rules
        frame = read_frame(data, max_depth=rules.max_depth, default_model=rules.default_model, injects=rules.injects)
        if frame is not None:
            accept(frame, len(data))
        self._note(data)

    def _note(self, data: bytes) -> None:
        self._idle.note_message()
        self._metrics.defer(self._metrics.websocket_message_bytes, len(data))
