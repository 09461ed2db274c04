import asyncio
import socket

import pytest

from gateway.config.schema import GatewayConfig
from gateway.server.process import serve_admin


async def never_asked(scope, receive, send):
    raise AssertionError("only connections are made")


def bind():
    bound = socket.socket()
    bound.bind(("127.0.0.1", 0))
    return bound


async def test_the_admin_listener_takes_connections_from_the_beginning():
    bound = bind()
    async with serve_admin(never_asked, GatewayConfig, bound):
        # Before the loop has had another turn.
        socket.create_connection(bound.getsockname(), timeout=20).close()


async def test_what_hinders_the_admin_server_is_told_at_the_end():
    bound = bind()
    bound.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        async with asyncio.timeout(20), serve_admin(never_asked, GatewayConfig, bound):
            pass
