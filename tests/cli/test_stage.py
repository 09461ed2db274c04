import socket
import threading

import pytest

from gateway.cli.stage import Client, TourFailed

PATIENCE = 40


class Scripted:
    """Answers one connection: a piece, and the next only when `go_on` is set."""

    def __init__(self, *pieces: str) -> None:
        self.go_on = threading.Event()
        self._pieces = [piece.encode() for piece in pieces]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self.go_on.set()
        self._thread.join()
        self._listener.close()

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.recv(65536)
            first, *others = self._pieces
            connection.sendall(first)
            for piece in others:
                self.go_on.wait(PATIENCE)
                connection.sendall(piece)


HEAD = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(text: str) -> str:
    return f"{len(text.encode()):x}\r\n{text}\r\n"


def test_events_are_seen_as_they_arrive():
    with Scripted(
        HEAD + chunk('event: a\ndata: {"type":"a"}\n\n'), chunk('data: {"type":"b"}\n\ndata: [DONE]\n\n') + "0\r\n\r\n"
    ) as server:
        events = Client(server.port).stream({"model": "sim"})
        assert next(events) == {"type": "a"}
        server.go_on.set()
        assert list(events) == [{"type": "b"}]


def test_another_status_is_a_failure():
    with (
        Scripted("HTTP/1.1 404 Not Found\r\nContent-Length: 5\r\n\r\nwhere") as server,
        pytest.raises(TourFailed, match="GET /v1/models was answered with 404: where"),
    ):
        Client(server.port).retrieve("/v1/models")


def test_a_socket_that_is_refused_is_a_failure():
    with (
        Scripted("HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n") as server,
        pytest.raises(TourFailed, match=r"the WebSocket broke off: .*426"),
        Client(server.port).open_lanes(),
    ):
        pass
