"""A caller that asks on one WebSocket, on any number of lanes at once, and takes the times."""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import msgspec
from http_caller import PATH
from websocket import ABNF, WebSocket, WebSocketBadStatusException, WebSocketTimeoutException, create_connection
from witness import Witness, decode_event


class SocketCaller:
    """Asks on one connection, which is opened when it is needed.

    Args:
        url: base URL of the target, http or https, without path.
        headers: of the upgrade.
        timeout: seconds that a turn may take.
    """

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float) -> None:
        self._url = "ws" + url.removeprefix("http") + PATH
        self._headers = [f"{name}: {value}" for name, value in headers.items()]
        self._timeout = timeout
        self._socket: WebSocket | None = None
        self._running: dict[str | None, Witness] = {}
        self._ended: list[Witness] = []

    def ask(self, body: Mapping[str, object], witness: Witness) -> None:
        """Begin one turn on the lane of its witness, which must be free."""
        lane = {} if witness.lane is None else {"stream_id": witness.lane}
        self._running[witness.lane] = witness
        with self._blaming():
            if self._socket is None:
                self._socket = self._open()
            self._socket.send(msgspec.json.encode({"type": "response.create", **lane, **body}))

    def wait(self) -> Witness:
        """Return the next turn that ended, well or not; one must be running."""
        while not self._ended:
            with self._blaming():
                self._read()
        return self._ended.pop(0)

    def close(self) -> None:
        """Close the connection without waiting for anything."""
        if self._socket is not None:
            self._socket.shutdown()
            self._socket = None

    def _open(self) -> WebSocket:
        return create_connection(
            self._url,
            timeout=self._timeout,
            header=self._headers,
            suppress_origin=True,
            http_no_proxy=["*"],
            skip_utf8_validation=True,
        )

    def _read(self) -> None:
        assert self._socket is not None
        opcode, data = self._socket.recv_data()
        now = time.perf_counter_ns()
        if opcode == ABNF.OPCODE_CLOSE:
            raise ConnectionError(f"the server closed: {data!r}")
        event = decode_event(data)
        witness = self._running.get(event.stream_id)
        if witness is None:
            # Whose it was cannot be told, so none of them can be trusted.
            self._give_up("wrong stream_id", f"{event.stream_id} in {event.type}, but nothing runs there")
            return
        witness.take(event, data, now)
        if witness.ended:
            self._ended.append(self._running.pop(event.stream_id))
        if any(running.expired(self._timeout) for running in self._running.values()):
            raise TimeoutError

    @contextmanager
    def _blaming(self) -> Iterator[None]:
        """Make whatever goes wrong with the connection the fault of all turns that run on it."""
        try:
            yield
        except (TimeoutError, WebSocketTimeoutException):
            self._give_up("timeout", f"no end within {self._timeout:g} s")
        except WebSocketBadStatusException as error:
            self._give_up("wrong status", f"{error.status_code}: {(error.resp_body or b'').decode(errors='replace')}")
        except msgspec.DecodeError as error:
            self._give_up("unreadable event", str(error))
        except Exception as error:  # noqa: BLE001 - the library raises its own, those of sockets and of TLS
            self._give_up("connection", f"{type(error).__name__}: {error}")

    def _give_up(self, fault: str, detail: str) -> None:
        self.close()
        for witness in self._running.values():
            witness.blame(fault, detail)
        self._ended += self._running.values()
        self._running.clear()
