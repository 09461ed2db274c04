"""What a tour is given on: a simulator, a gateway before it, and a client with nothing but the standard library."""

import http.client
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from gateway import __version__
from gateway.cli.children import Child, ChildFailed, choose_ports

_HOST = "127.0.0.1"
_SIMULATOR_PORT, _GATEWAY_PORT, _ADMIN_PORT = 8000, 9000, 9901
_ANSWER_SECONDS = 30.0
# What one may do next, and the command line for it.
Commands = Sequence[tuple[str, str]]

_NO_HEADERS: Mapping[str, str] = {}


class TourFailed(Exception):
    """A step of a tour did not go as it must."""


class Stage:
    """Two processes and their addresses; `open_stage` starts them.

    Args:
        folder: where they keep what they write.
        simulate: further arguments of the simulator.
        serve: further arguments of the gateway.
    """

    def __init__(self, folder: Path, simulate: Sequence[str] = (), serve: Sequence[str] = ()) -> None:
        simulator_port, gateway_port, admin_port = choose_ports(_SIMULATOR_PORT, _GATEWAY_PORT, _ADMIN_PORT)
        self.port = gateway_port
        self.simulator_url, self.url, self.admin_url = (
            f"http://{_HOST}:{port}" for port in (simulator_port, gateway_port, admin_port)
        )
        self.simulator = Child("simulator", ["simulate", "--port", str(simulator_port), *simulate], folder)
        where = ["serve", "--host", _HOST, "--port", str(gateway_port), "--upstream", self.simulator_url]
        settings = ["--set", f"admin.bind={_HOST}:{admin_port}", "--database", f"sqlite:///{folder / 'responses.db'}"]
        self.gateway = Child("gateway", [*where, *settings, *serve], folder)

    def check(self) -> None:
        """Raise `ChildFailed` when one of the processes has ended."""
        self.simulator.check()
        self.gateway.check()

    @contextmanager
    def explain_failure(self, console: Console) -> Iterator[None]:
        """Have a step that fails told with the end of the gateway's log.

        Raises:
            ChildFailed: the step raised `TourFailed`.
        """
        try:
            yield
        except TourFailed as failure:
            console.print()
            raise ChildFailed(f"The tour failed: {failure}.", self.gateway.tail()) from failure

    def show(self, console: Console) -> None:
        """Print the addresses."""
        table = Table.grid(padding=(0, 3))
        for name, url, about, port in (
            ("gateway", self.url, "SQLite in a temporary folder", _GATEWAY_PORT),
            ("status", f"{self.admin_url}/", "what it does now; /metrics for Prometheus", _ADMIN_PORT),
            ("simulator", self.simulator_url, "stands in for vLLM", _SIMULATOR_PORT),
        ):
            note = about if f":{port}" in url else f"{about}; port {port} was in use"
            table.add_row(f"[bold]{name}", f"[cyan]{url}", f"[dim]{note}")
        console.print(Padding(table, (0, 2)))


@contextmanager
def open_stage(console: Console, build: Callable[[Path], Stage]) -> Iterator[Stage]:
    """Start a stage; it is stopped, the gateway first, and its folder removed whatever happens.

    Args:
        console: where to say that it starts.
        build: makes the stage in a temporary folder.

    Raises:
        ChildFailed: a process did not start.
    """
    console.print(f"[bold]Responses Gateway {__version__}[/] [dim]· demo")
    with ExitStack() as ending:
        stage = build(Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="gateway-demo-"))))
        with console.status("starting") if console.is_terminal else ExitStack():
            ending.callback(stage.simulator.stop)
            stage.simulator.start(f"{stage.simulator_url}/health")
            ending.callback(stage.gateway.stop)
            stage.gateway.start(f"{stage.url}/readyz")
        yield stage


class Client:
    """Talks to the gateway with the standard library alone.

    Args:
        port: the gateway's port on loopback.
        headers: sent with each request and each upgrade.
    """

    def __init__(self, port: int, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        self._port = port
        self._headers = headers

    def retrieve(self, path: str) -> dict[str, Any]:
        """Return the JSON object that GET answers.

        Raises:
            TourFailed: there is no answer, or one with another status than 200.
        """
        with self._exchange("GET", path) as answer:
            found: dict[str, Any] = msgspec.json.decode(answer.read())
            return found

    def stream(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the events of a streamed response, each as soon as it has arrived.

        Raises:
            TourFailed: as `retrieve`.
        """
        with self._exchange("POST", "/v1/responses", {**request, "stream": True}) as answer:
            while line := answer.readline():
                if line.startswith(b"data: {"):
                    yield msgspec.json.decode(line.removeprefix(b"data: "))

    @contextmanager
    def open_lanes(self) -> Iterator["Lanes"]:
        """Open a WebSocket.

        Raises:
            TourFailed: it is not accepted, or breaks off, or a frame does not arrive in time.
        """
        url = f"ws://{_HOST}:{self._port}/v1/responses"
        try:
            with connect(
                url, additional_headers=self._headers, open_timeout=_ANSWER_SECONDS, max_size=None, proxy=None
            ) as socket:
                yield Lanes(socket)
        except (OSError, WebSocketException, msgspec.DecodeError) as error:
            raise TourFailed(f"the WebSocket broke off: {error or type(error).__name__}") from error

    @contextmanager
    def _exchange(self, method: str, path: str, body: Any = None) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(_HOST, self._port, timeout=_ANSWER_SECONDS)
        try:
            content = None if body is None else msgspec.json.encode(body)
            connection.request(method, path, content, {"content-type": "application/json", **self._headers})
            answer = connection.getresponse()
            if answer.status != 200:
                shown = answer.read(500).decode(errors="replace")
                raise TourFailed(f"{method} {path} was answered with {answer.status}: {shown}")
            yield answer
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            raise TourFailed(f"{method} {path} broke off: {error or type(error).__name__}") from error
        finally:
            connection.close()


class Lanes:
    """One WebSocket.

    Args:
        socket: where its frames pass.
    """

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    def create(self, lane: str, request: dict[str, Any]) -> None:
        """Ask for a response on a lane."""
        self.send({"type": "response.create", "stream_id": lane, **request})

    def send(self, frame: dict[str, Any]) -> None:
        """Send a frame as it is."""
        self._socket.send(msgspec.json.encode(frame), text=True)

    def read(self) -> dict[str, Any]:
        """Return the next event, of whichever lane."""
        event: dict[str, Any] = msgspec.json.decode(self._socket.recv(_ANSWER_SECONDS))
        return event


def print_title(console: Console, title: str) -> None:
    """Begin a step of a tour."""
    console.print()
    console.print(f"━━ {title}", style="bold green", markup=False, soft_wrap=True)


def write_curl(url: str, *headers: str, **fields: Any) -> str:
    """Return the command line that asks a gateway for a response.

    Args:
        url: the gateway's.
        headers: further ones, whole lines.
        fields: of the request, but for the model.
    """
    body = msgspec.json.encode({"model": "sim", **fields}).decode()
    given = "".join(f" -H '{header}'" for header in ("content-type: application/json", *headers))
    return f"curl -N {url}/v1/responses{given} -d '{body}'"


def text_of(response: dict[str, Any]) -> str:
    """Return all that a response says."""
    return "".join(part.get("text", "") for item in response["output"] for part in item.get("content", ()))
