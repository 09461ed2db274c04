"""How events leave the engine: the side of a client that a run sees, whatever the transport."""

from typing import Protocol, TypeAlias

from gateway.protocol.response import EncodedResponse

EncodedEvent: TypeAlias = tuple[bytes, bytes]
"""One event, serialized once for every transport: its `type`, and its JSON."""


class Channel(Protocol):
    """Takes the events of one response to its client, in order. One run is its only user."""

    @property
    def opened(self) -> bool:
        """Whether the client has been told of the response; before that a failure can still be the answer itself."""
        ...

    def write(self, batch: list[EncodedEvent]) -> bool:
        """Send a batch at once; False, and nothing done, when it has to be `put`."""
        ...

    async def put(self, batch: list[EncodedEvent]) -> None:
        """Send a batch, beginning the answer if it is the first; waits while the client is too far behind.

        What is cancelled while it waits leaves its batch behind all the same: what may follow it is a failure, and no
        event before that may be missing.
        """
        ...

    async def end(self, batch: list[EncodedEvent]) -> None:
        """Send the last batch and end the answer; returns when all of it has been handed to the connection."""
        ...


class Keeper(Protocol):
    """Stores a finished response together with its last events, so that both are there or neither."""

    async def keep(self, finished: EncodedResponse, events: list[EncodedEvent]) -> None:
        """Return once the response is durable; its terminal event is not among the events, and is told afterwards.

        Raises:
            StorageUnavailable: nothing was stored.
        """
        ...
