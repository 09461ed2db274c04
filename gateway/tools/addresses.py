"""Which addresses a tool may connect to, decided on the address that is connected to.

A name is looked up once and the connection goes to what was found, so that a name whose address changes between a check
and its use leads nowhere else.
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Any

import httpcore2

from gateway.tools.address_space import is_public

_MOST_ADDRESSES = 4


class AddressRefused(httpcore2.ConnectError):
    """A name leads to private addresses alone."""


async def look_up(host: str, port: int) -> list[str]:
    """Return the addresses of a host.

    It is looked up in a thread of its own: a caller may name a host whose lookup takes half a minute, and the few
    threads of the event loop are for others, such as connections to the inference server.

    Raises:
        httpcore2.ConnectError: it has none.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[Any]] = loop.create_future()

    def look() -> None:
        try:
            told = partial(settle, answer.set_result, socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except (OSError, UnicodeError) as error:
            told = partial(settle, answer.set_exception, error)
        # Nobody may wait any more, and the loop may have ended.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(told)

    def settle(tell: Callable[[Any], None], told: Any) -> None:
        if not answer.done():
            tell(told)

    threading.Thread(target=look, name="look-up", daemon=True).start()
    try:
        found = await answer
    except (OSError, UnicodeError) as error:
        raise httpcore2.ConnectError("the name cannot be resolved") from error
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Opens connections for an HTTP client, to permitted addresses only.

    Args:
        allow_private: permit loopback, private and link-local addresses too.
    """

    def __init__(self, *, allow_private: bool) -> None:
        self._allow_private = allow_private
        self._inner = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        """Connect to the first address of the host that is permitted and answers.

        Raises:
            AddressRefused: none is permitted.
            httpcore2.ConnectError: none answers.
            httpcore2.ConnectTimeout: the last one tried did not answer in time.
        """
        addresses = await look_up(host, port)
        permitted = [address for address in addresses if self._allow_private or is_public(address)]
        if not permitted:
            raise AddressRefused("the host has a private address")
        failure: Exception | None = None
        for address in permitted[:_MOST_ADDRESSES]:
            try:
                return await self._inner.connect_tcp(address, port, timeout, local_address, socket_options)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        assert failure is not None
        raise failure

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
