"""The caller's side: plain blocking HTTP, and raw sockets where a caller must misbehave."""

import http.client
import json
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

RESPONSES = "/v1/responses"


@dataclass(frozen=True)
class Answer:
    """One HTTP answer, its body read to the end."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        return self.json["error"]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The events of a stream, `[DONE]` left out."""
        lines = (line[5:].strip() for line in self.body.split(b"\n") if line.startswith(b"data:"))
        return [json.loads(line) for line in lines if line != b"[DONE]"]

    @property
    def final(self) -> dict[str, Any]:
        """The response object of the terminal event."""
        return self.events[-1]["response"]

    def deltas(self, kind: str = "response.output_text.delta") -> str:
        """All deltas of one event type, joined."""
        return "".join(event["delta"] for event in self.events if event["type"] == kind)


class Client:
    """A caller with one keep-alive connection."""

    def __init__(self, port: int, timeout: float = 30.0) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)

    @property
    def socket(self) -> socket.socket | None:
        """The open connection, to see whether it is still the same one."""
        return self._connection.sock

    def create(self, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Answer:
        """POST one create and read the whole answer."""
        return self.call("POST", RESPONSES, json.dumps(body).encode(), headers)

    def get(self, path: str) -> Answer:
        """GET a path."""
        return self.call("GET", path)

    def call(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """Send any request and read the whole answer."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        self._connection.request(method, path, body, sent)
        answer = self._connection.getresponse()
        received = {name.lower(): value for name, value in answer.getheaders()}
        return Answer(answer.status, received, answer.read())

    def close(self) -> None:
        self._connection.close()


@contextmanager
def client(port: int, timeout: float = 30.0) -> Iterator[Client]:
    """A client that is closed at the end."""
    caller = Client(port, timeout)
    try:
        yield caller
    finally:
        caller.close()


def create(port: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> Answer:
    """POST one create on a connection of its own."""
    with client(port) as caller:
        return caller.create(body, headers)


def open_create(
    port: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None, receive_buffer: int | None = None
) -> socket.socket:
    """Send one create over a raw socket and return the socket unread."""
    payload = json.dumps(body).encode()
    lines = ["POST /v1/responses HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json"]
    lines += [f"Content-Length: {len(payload)}", *(f"{name}: {value}" for name, value in (headers or {}).items())]
    connection = socket.socket()
    connection.settimeout(30)
    if receive_buffer is not None:  # only a size set before the handshake bounds the window
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    try:
        connection.connect(("127.0.0.1", port))
        connection.sendall("\r\n".join([*lines, "", ""]).encode() + payload)
    except OSError:
        connection.close()
        raise
    return connection


def read_until(connection: socket.socket, needle: bytes) -> bytes:
    """Read until `needle` has arrived; fails when the peer closes before."""
    seen = b""
    while needle not in seen:
        piece = connection.recv(65536)
        assert piece, f"the gateway closed before {needle!r} came: {seen[-400:]!r}"
        seen += piece
    return seen


def read_slowly(port: int, body: Mapping[str, Any], bytes_per_second: int) -> bytes:
    """POST a create, read the answer at a steady low rate and return its body, which must be chunked."""
    connection = open_create(port, body, receive_buffer=4096)
    raw, started = b"", time.monotonic()
    with connection:
        while not raw.endswith(b"\r\n0\r\n\r\n"):
            piece = connection.recv(min(1024, bytes_per_second))
            assert piece, f"the body broke off after {len(raw)} bytes"
            raw += piece
            time.sleep(max(0.0, started + len(raw) / bytes_per_second - time.monotonic()))
    head, _, rest = raw.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200"), head
    return _dechunk(rest)


def _dechunk(raw: bytes) -> bytes:
    body = b""
    while True:
        size, _, raw = raw.partition(b"\r\n")
        length = int(size, 16)
        if length == 0:
            return body
        body, raw = body + raw[:length], raw[length + 2 :]
