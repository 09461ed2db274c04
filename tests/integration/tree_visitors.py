"""Clients of a response of several agents that do not wait for its end: on a WebSocket, and over HTTP."""

import json
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any, Protocol, TypeAlias

from harness.client import open_create
from harness.frames import Event
from harness.websocket import WebSocket
from integration.trees import BETA

Json: TypeAlias = dict[str, Any]


class Visitor(Protocol):
    """A client that asks once.

    Attributes:
        ways: how it can leave, by name; each ends its connection for the gateway.
    """

    ways: Mapping[str, Callable[[], None]]

    def ask(self, body: Json) -> None:
        """Send the create."""

    def inject(self, response_id: str, item: Json) -> None:
        """Send an output."""

    def next_event(self) -> Event:
        """Return the next event."""


class SocketVisitor:
    """A client on a WebSocket."""

    def __init__(self, connection: WebSocket) -> None:
        self._connection = connection
        self.ways = {
            "close": connection.close,
            "leave": connection.leave,
            "reset": connection.reset,
            "half-close": connection.half_close,
        }

    def ask(self, body: Json) -> None:
        self._connection.send({"type": "response.create", **body})

    def inject(self, response_id: str, item: Json) -> None:
        self._connection.send({"type": "response.inject", "response_id": response_id, "input": [item]})

    def next_event(self) -> Event:
        return self._connection.next_event()


class StreamVisitor:
    """A client of an event stream."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._unread = b""
        self.ways = {"leave": self.close, "half-close": self._half_close}

    def ask(self, body: Json) -> None:
        self.connection = open_create(self._port, {**body, "stream": True}, BETA)

    def inject(self, response_id: str, item: Json) -> None:
        raise AssertionError("there is no inject over HTTP")

    def next_event(self) -> Event:
        """Read up to the end of the next event; the frame of a chunk stands before it, or between two."""
        while not (found := self._unread.partition(b"\n\n"))[1]:
            piece = self.connection.recv(65536)
            assert piece, "the gateway ended the stream"
            self._unread += piece
        self._unread = found[2]
        (data,) = [line[6:] for line in found[0].split(b"\n") if line.startswith(b"data: ")]
        event: Event = json.loads(data)
        return event

    def close(self) -> None:
        self.connection.close()

    def _half_close(self) -> None:
        self.connection.shutdown(socket.SHUT_WR)


TRANSPORTS = ("websocket", "sse")


@contextmanager
def join(port: int, transport: str) -> Iterator[Visitor]:
    """Be a client, whose connection ends behind it if it has not ended before."""
    if transport == "websocket":
        with WebSocket(port, headers=BETA) as connection:
            yield SocketVisitor(connection)
    else:
        with closing(StreamVisitor(port)) as visitor:
            yield visitor
