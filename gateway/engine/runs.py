"""The responses being made now, and what is said to one of them while it is."""

from collections.abc import Awaitable
from typing import Any

from gateway.engine.run import Run
from gateway.protocol.errors import GatewayError
from gateway.protocol.events import Event


class Runs(dict[str, Run]):
    """Each run by the id of its response."""

    def cut_off_response(self, response_id: str, error: GatewayError) -> None:
        """End one response as failed with this error, as `Run.cut_off` does; nothing happens if it has ended."""
        run = self.get(response_id)
        if run is not None:
            run.cut_off(error)

    def inject(self, response_id: str, items: list[Any]) -> Awaitable[bool] | None:
        """Hand outputs of the client's tools to a response of several agents; None if it is not being made.

        Args:
            response_id: the response.
            items: the outputs, in the order in which they are to be taken: all of them, or none.

        Returns:
            Tells, in due time, whether their fate was told in the response's own stream, as `response.inject.created`
            or `response.inject.failed`. If not, the response has ended without a look at them.
        """
        run = self.get(response_id)
        return None if run is None else run.inject(items)

    def tell(self, response_id: str, event: Event, *, steers: bool = False) -> Awaitable[None] | None:
        """Tell the client of a response what became of a control; arguments and result as `Run.tell`.

        Raises:
            ResourceLimitExceeded: the event is too large to be sent.
        """
        run = self.get(response_id)
        return None if run is None else run.tell(event, steers=steers)
