"""Bodies of requests beside the hot path."""

from asyncio import CancelledError
from typing import Any

from litestar import Request
from litestar.di import NamedDependency
from litestar.params import SkipValidation

from gateway.config.schema import GatewayConfig
from gateway.protocol.requests import read_object
from gateway.transport.connection import ClientLeft, find_connection
from gateway.transport.http import read_body


class Bodies:
    """Reads them, within the bounds of the hot path's.

    Args:
        config: these bounds.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self.reconfigure(config)

    def reconfigure(self, config: GatewayConfig) -> None:
        """Use other bounds for every request that begins from now on."""
        self._server = config.server
        self._max_depth = config.responses.max_json_depth

    async def read(self, request: Request[Any, Any, Any]) -> dict[str, Any]:
        """Return the JSON object that a request brings; an empty body is one without members.

        Raises:
            RequestTooLarge: it is above `[server] max_request_body_bytes`.
            RequestTimeout: it took too long to arrive.
            InvalidRequest: `invalid_json`.
        """
        scope = request.scope
        try:
            body = await read_body(scope, request.receive, self._server, find_connection(scope))
        except ClientLeft:
            # Nobody is there to be answered.
            raise CancelledError from None
        return read_object(body, self._max_depth)


BodiesDependency = NamedDependency[SkipValidation[Bodies]]
