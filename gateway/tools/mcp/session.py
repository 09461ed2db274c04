"""One session with one MCP server, kept by a task of its own.

The SDK's parts belong to the task that entered them, so that task is the session: it opens the transport, agrees on
the protocol, and waits until it is told to end. Requests come from other tasks. Of each the caller waits only as long
as it wants to: what is left of a request that was given up, such as telling the server, ends by itself.
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from itertools import count
from typing import Any, Final, NamedTuple

import mcp_types
from mcp.client.session import ClientSession
from mcp.shared._stream_protocols import ReadStream, WriteStream
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import SessionMessage
from pydantic_core import to_json

from gateway import __version__
from gateway.tools.mcp.exchange import Exchange, ServerFault, current_exchange

_CLOSE_SECONDS: Final = 3.0
_FIRST_ID: Final = 100  # those below are of requests that the SDK sends by itself
_WORDS: Final = 2000  # characters of a server's own words about an error
_CLIENT: Final = mcp_types.Implementation(name="responses-gateway", version=__version__)


class Streams(NamedTuple):
    """What a transport is to a session.

    Attributes:
        reader: what the server says.
        writer: what it is told.
        session_id: returns what the server calls the session.
        fault: returns why the transport ended by itself, if it did.
    """

    reader: ReadStream[SessionMessage | Exception]
    writer: WriteStream[SessionMessage]
    session_id: Callable[[], str | None]
    fault: Callable[[], ServerFault | None]


Connect = Callable[[asyncio.Event], AbstractAsyncContextManager[Streams]]
"""Opens a transport, which sets the event if it ends by itself; raises ServerFault if it cannot be opened."""


class _Every(frozenset[str]):
    """All methods: what a server asks is answered before more of it is read, or any number would wait for answers."""

    def __contains__(self, _: object) -> bool:
        return True


class Session:
    """A session; `start` it first.

    Args:
        connect: opens its transport.

    Attributes:
        protocol_version: what both agreed on; empty before.
    """

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._ids = count(_FIRST_ID)
        self._stop = asyncio.Event()
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._dispatcher: JSONRPCDispatcher[Any] | None = None
        self._streams: Streams | None = None
        self._fault: ServerFault | None = None
        self._opening = Exchange()
        self._requests: set[asyncio.Task[Any]] = set()
        self._owner: asyncio.Task[None] | None = None
        self._tell: list[Callable[[Session], None]] = []
        self.protocol_version = ""

    @property
    def alive(self) -> bool:
        """Whether requests may be sent."""
        return self._dispatcher is not None and not self._stop.is_set()

    @property
    def session_id(self) -> str | None:
        """What the server calls the session."""
        return self._streams.session_id() if self._streams is not None else None

    async def start(self, timeout: float) -> None:
        """Open the transport and agree on the protocol. Cancelling it ends the session.

        Args:
            timeout: limit in seconds.

        Raises:
            ServerFault: that failed, or took too long.
        """
        # It may outlive the request that opens it, so it takes nothing of that request's context along.
        self._owner = asyncio.create_task(self._keep(), context=Context())
        self._owner.add_done_callback(lambda _: [tell(self) for tell in self._tell])
        try:
            async with asyncio.timeout(timeout):
                await asyncio.shield(self._ready)
        except TimeoutError:
            self._owner.cancel()
            raise ServerFault(
                f"did not agree on the protocol within {timeout:g} s", bound="mcp.connect_timeout_seconds"
            ) from None
        except asyncio.CancelledError:
            self._owner.cancel()
            raise

    async def request(
        self,
        method: str,
        params: dict[str, Any],
        *,
        timeout: float,
        bound: str | None,
        exchange: Exchange | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its result, unchecked.

        Cancelling the caller ends it at once; the server is told so.

        Args:
            method: of the protocol.
            params: likewise.
            timeout: limit in seconds; nothing that the server reports meanwhile extends it.
            bound: key of the configuration that says so, if one does.
            exchange: what the answer may take.

        Raises:
            ServerFault: the server refused it, broke off, or said too much or nothing; or it cannot be sent.
        """
        exchange = exchange or Exchange()
        _check_text(params)
        task = asyncio.create_task(self._exchange(method, params, exchange))
        self._requests.add(task)
        task.add_done_callback(self._forget)
        try:
            done, _ = await asyncio.wait([task], timeout=timeout)
        except asyncio.CancelledError:
            exchange.end()
            raise
        if not done:
            exchange.fail(ServerFault(f"did not answer within {timeout:g} s", bound=bound))
        if exchange.fault is not None:
            raise exchange.fault
        return task.result()

    def when_closed(self, tell: Callable[["Session"], None]) -> None:
        """Have something told when the session has ended."""
        self._tell.append(tell)

    def stop(self) -> None:
        """End the session soon, in the background. Idempotent."""
        self._stop.set()
        if not self._ready.done() and self._owner is not None:
            self._owner.cancel()

    async def closed(self) -> None:
        """Wait until it has ended."""
        if self._owner is not None:
            await asyncio.wait([self._owner])

    async def _exchange(self, method: str, params: dict[str, Any], exchange: Exchange) -> dict[str, Any]:
        current_exchange.set(exchange)
        dispatcher = self._dispatcher
        if dispatcher is None:
            raise self._read_fault() or ServerFault("ended the session")
        try:
            with exchange.scope():
                exchange.request_id = next(self._ids)
                return await dispatcher.send_raw_request(method, params, {"request_id": exchange.request_id})
        except MCPError as error:
            raise self._explain(error, exchange) from None
        except Exception:  # noqa: BLE001 - whatever the SDK made of a server's words, it is the server's fault
            raise exchange.fault or ServerFault("gave an answer that is not of the protocol") from None
        finally:
            exchange.end()
        raise exchange.fault or ServerFault("was given up")

    def _explain(self, error: MCPError, exchange: Exchange) -> ServerFault:
        if exchange.fault is not None:
            return exchange.fault
        if exchange.status is not None:
            return ServerFault(f"answered with HTTP status {exchange.status}: {error.message[:_WORDS]}")
        if error.code == mcp_types.CONNECTION_CLOSED:
            return self._read_fault() or ServerFault("ended the session, or broke off its answer")
        if error.code == mcp_types.PARSE_ERROR:
            return ServerFault("gave an answer that is not of the protocol")
        return ServerFault(f"refused: {error.message[:_WORDS]}")

    async def _keep(self) -> None:
        """Be the session."""
        current_exchange.set(self._opening)
        try:
            async with asyncio.timeout(None) as limit, self._connect(self._stop) as streams:
                self._streams = streams
                dispatcher = JSONRPCDispatcher(streams.reader, streams.writer, inline_methods=_Every())
                async with ClientSession(dispatcher=dispatcher, client_info=_CLIENT) as client:
                    agreed = await client.initialize()
                    self.protocol_version = str(agreed.protocol_version)
                    self._dispatcher = dispatcher
                    self._ready.set_result(None)
                    await self._stop.wait()
                    limit.reschedule(asyncio.get_running_loop().time() + _CLOSE_SECONDS)
        except Exception as error:  # noqa: BLE001 - the SDK's tasks raise whatever ended them, in groups
            self._fault = self._opening.fault or self._read_fault() or _find_fault(error, self._opening)
        finally:
            self._dispatcher = None
            if not self._ready.done():
                self._ready.set_exception(self._fault or ServerFault("was given up"))
                self._ready.exception()  # nobody may be waiting any more

    def _read_fault(self) -> ServerFault | None:
        return self._fault or (self._streams.fault() if self._streams is not None else None)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._requests.discard(task)
        if not task.cancelled():
            task.exception()  # whoever waited has been told, or has left


def _check_text(params: dict[str, Any]) -> None:
    """Refuse what the SDK cannot write: it would end the session, and with it whatever others have under way.

    Raises:
        ServerFault: it holds half a surrogate pair, or is nested too deep.
    """
    try:
        to_json(params)
    except ValueError:
        raise ServerFault("was not called: half a character, or what is nested too deep, cannot be sent") from None


def _find_fault(error: BaseException, opening: Exchange) -> ServerFault:
    """Return what is behind an error of the SDK's tasks."""
    if isinstance(error, ServerFault):
        return error
    if isinstance(error, BaseExceptionGroup):
        faults = [_find_fault(one, opening) for one in error.exceptions]
        return next((fault for fault in faults if fault.message != _UNKNOWN), ServerFault(_UNKNOWN))
    if opening.status is not None:
        return ServerFault(f"answered with HTTP status {opening.status}")
    if isinstance(error, MCPError) and error.code not in {mcp_types.CONNECTION_CLOSED, mcp_types.PARSE_ERROR}:
        return ServerFault(f"refused: {error.message[:_WORDS]}")
    if isinstance(error, RuntimeError) and "protocol version" in str(error):
        return ServerFault("speaks a version of the protocol that this gateway does not")
    return ServerFault(_UNKNOWN)


_UNKNOWN: Final = "does not speak the protocol, or ended the session"
