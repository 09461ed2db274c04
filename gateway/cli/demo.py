"""`gateway demo`: a tour of a running gateway, with a simulated inference server behind it."""

import http.client
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import msgspec
import rich_click as click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from gateway import __version__
from gateway.cli.children import Child, ChildFailed, choose_ports
from gateway.cli.errors import print_error

_HOST = "127.0.0.1"
_SIMULATOR_PORT, _GATEWAY_PORT, _ADMIN_PORT = 8000, 9000, 9901
_ANSWER_SECONDS = 30.0
_WATCH_SECONDS = 0.5
_SHOWN_CHARACTERS = 72
_SHOWN_FIELDS = ("id", "object", "created_at", "status", "model", "previous_response_id", "output", "usage")
_FIRST_WORDS = "Hello, I am Ada and I like prime numbers."
_NEXT_WORDS = "Do you remember what I said?"
_FORKS = {"left": ("Which is the first?", "yellow"), "right": ("Is there a last one?", "cyan")}
_SHOWN_PIECES = 12
_TOOL = {
    "type": "function",
    "name": "add",
    "parameters": {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}},
}
_TOOL_WORDS = '@tool add {"a": 19, "b": 23}'
_DELTAS = ("response.output_text.delta", "response.function_call_arguments.delta")


class DemoFailed(Exception):
    """A step of the tour did not go as it must."""


@click.command("demo")
@click.option("--once", is_flag=True, help="End after the tour instead of waiting for Ctrl-C.")
def command(*, once: bool) -> None:
    """Show a gateway at work: an answer, what was stored, two forks on one WebSocket, a round of a tool.

    Starts a simulated inference server and a gateway on SQLite in a temporary folder, and removes all of it in the
    end. Ports in use are replaced by free ones. Exit codes: 0 when every step went well, 1 with the reason otherwise.
    """
    # Shells start background jobs with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    console = Console(highlight=False)
    try:
        with _running(console) as stage:
            shown = Tour(console, stage).run()
            if once:
                _say_goodbye(console)
            else:
                _suggest(console, stage, shown)
                _wait(console, stage)
    except KeyboardInterrupt:
        console.print("\nStopped.", style="dim")
    except ChildFailed as failure:
        _give_up(str(failure), failure.log)


class Stage:
    """What the tour is given on: the two processes and their addresses."""

    def __init__(self, folder: Path) -> None:
        simulator_port, gateway_port, admin_port = choose_ports(_SIMULATOR_PORT, _GATEWAY_PORT, _ADMIN_PORT)
        self.port = gateway_port
        self.simulator_url, self.url, self.admin_url = (
            f"http://{_HOST}:{port}" for port in (simulator_port, gateway_port, admin_port)
        )
        self.simulator = Child("simulator", ["simulate", "--port", str(simulator_port)], folder)
        serve = ["serve", "--host", _HOST, "--port", str(gateway_port), "--upstream", self.simulator_url]
        settings = ["--set", f"admin.bind={_HOST}:{admin_port}", "--database", f"sqlite:///{folder / 'responses.db'}"]
        self.gateway = Child("gateway", [*serve, *settings], folder)

    def check(self) -> None:
        """Raise `ChildFailed` when one of the processes has ended."""
        self.simulator.check()
        self.gateway.check()


class Client:
    """Talks to the gateway with the standard library alone.

    Args:
        port: the gateway's port on loopback.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    def retrieve(self, path: str) -> dict[str, Any]:
        """Return the JSON object that GET answers.

        Raises:
            DemoFailed: there is no answer, or one with another status than 200.
        """
        with self._exchange("GET", path) as answer:
            found: dict[str, Any] = msgspec.json.decode(answer.read())
            return found

    def stream(self, request: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the events of a streamed response, each as soon as it has arrived.

        Raises:
            DemoFailed: as `retrieve`.
        """
        with self._exchange("POST", "/v1/responses", {**request, "stream": True}) as answer:
            while line := answer.readline():
                if line.startswith(b"data: {"):
                    yield msgspec.json.decode(line.removeprefix(b"data: "))

    @contextmanager
    def open_lanes(self) -> Iterator["Lanes"]:
        """Open a WebSocket.

        Raises:
            DemoFailed: it is not accepted, or breaks off, or a frame does not arrive in time.
        """
        url = f"ws://{_HOST}:{self._port}/v1/responses"
        try:
            with connect(url, open_timeout=_ANSWER_SECONDS, max_size=None, proxy=None) as socket:
                yield Lanes(socket)
        except (OSError, WebSocketException, msgspec.DecodeError) as error:
            raise DemoFailed(f"the WebSocket broke off: {error or type(error).__name__}") from error

    @contextmanager
    def _exchange(self, method: str, path: str, body: Any = None) -> Iterator[http.client.HTTPResponse]:
        connection = http.client.HTTPConnection(_HOST, self._port, timeout=_ANSWER_SECONDS)
        try:
            content = None if body is None else msgspec.json.encode(body)
            connection.request(method, path, content, {"content-type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                shown = answer.read(500).decode(errors="replace")
                raise DemoFailed(f"{method} {path} was answered with {answer.status}: {shown}")
            yield answer
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            raise DemoFailed(f"{method} {path} broke off: {error or type(error).__name__}") from error
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
        frame = {"type": "response.create", "stream_id": lane, **request}
        self._socket.send(msgspec.json.encode(frame), text=True)

    def read(self) -> dict[str, Any]:
        """Return the next event, of whichever lane."""
        event: dict[str, Any] = msgspec.json.decode(self._socket.recv(_ANSWER_SECONDS))
        return event


class Tour:
    """The steps, each printed and each checked.

    Args:
        console: where to print.
        stage: a running stage.
    """

    def __init__(self, console: Console, stage: Stage) -> None:
        self._console = console
        self._stage = stage
        self._client = Client(stage.port)

    def run(self) -> str:
        """Give the whole tour and return the id of its last response.

        Raises:
            ChildFailed: a step failed; carries the gateway's log.
        """
        try:
            self._show_addresses()
            _head(self._console, "A streamed answer, token by token")
            first = self._ask(_FIRST_WORDS)
            _head(self._console, "The same conversation, continued by previous_response_id alone")
            second = self._ask(_NEXT_WORDS, previous_response_id=first["id"])
            if _FIRST_WORDS not in _text_of(second):
                raise DemoFailed("the second answer does not know the first message: the history did not arrive")
            _head(self._console, f"What was stored: GET /v1/responses/{second['id']}")
            self._show_stored(second)
            _head(self._console, "Two forks of it at the same time: lanes of one WebSocket")
            self._show_forks(second["id"])
            _head(self._console, "A tool: the model calls it, you run it, the model goes on with what it returned")
            self._show_tool()
        except DemoFailed as failure:
            self._console.print()
            raise ChildFailed(f"The tour failed: {failure}.", self._stage.gateway.tail()) from failure
        return str(second["id"])

    def _show_addresses(self) -> None:
        table = Table.grid(padding=(0, 3))
        for name, url, about, port in (
            ("gateway", self._stage.url, "SQLite in a temporary folder", _GATEWAY_PORT),
            ("status", f"{self._stage.admin_url}/", "what it does now; /metrics for Prometheus", _ADMIN_PORT),
            ("simulator", self._stage.simulator_url, "stands in for vLLM", _SIMULATOR_PORT),
        ):
            note = about if f":{port}" in url else f"{about}; port {port} was in use"
            table.add_row(f"[bold]{name}", f"[cyan]{url}", f"[dim]{note}")
        self._console.print(Padding(table, (0, 2)))

    def _ask(self, words: str, **fields: Any) -> dict[str, Any]:
        """Stream one answer to the console and return the response of its terminal event."""
        self._console.print(f"  [bold]you[/]    {words}")
        self._console.print("  [bold]model[/]  ", end="")
        began, first, count = time.perf_counter(), 0.0, 0
        last: dict[str, Any] = {}
        for last in self._client.stream({"model": "sim", "input": words, **fields}):
            count += 1
            if last["type"] in _DELTAS:
                first = first or time.perf_counter() - began
                self._console.print(last["delta"], end="", style="yellow", markup=False, soft_wrap=True)
        if last.get("type") != "response.completed":
            raise DemoFailed(f"the stream ended with {last.get('type', 'nothing')}: {last.get('response', last)}")
        took = time.perf_counter() - began
        facts = f"{count} events · first token after {first * 1000:.0f} ms, all after {took * 1000:.0f} ms"
        self._console.print(f"\n         [dim]{facts}")
        response: dict[str, Any] = last["response"]
        return response

    def _show_tool(self) -> None:
        """Have a tool called, and send what it returned."""
        asked = self._ask(_TOOL_WORDS, tools=[_TOOL])
        call = next((item for item in asked["output"] if item.get("type") == "function_call"), None)
        if call is None:
            raise DemoFailed("the model did not call the tool")
        result = str(sum(msgspec.json.decode(call["arguments"]).values()))
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": result}
        answered = self._ask(f"{call['name']} returned {result}", previous_response_id=asked["id"], input=[output])
        if result not in _text_of(answered):
            raise DemoFailed("the model does not know what the tool returned")

    def _show_stored(self, expected: dict[str, Any]) -> None:
        stored = self._client.retrieve(f"/v1/responses/{expected['id']}")
        if stored != expected:
            raise DemoFailed("the stored response is not the one that was streamed")
        shown = {name: _shorten(stored.get(name)) for name in _SHOWN_FIELDS}
        self._console.print_json(data=shown, indent=2, ensure_ascii=False)
        self._console.print("… and the fields of the request", style="dim")

    def _show_forks(self, parent_id: str) -> None:
        """Continue a response in two ways at once and print the answers as they arrive, by lane."""
        ended: dict[str, str] = {}
        pieces: list[tuple[str, str]] = []
        with self._client.open_lanes() as lanes:
            for lane, (words, _) in _FORKS.items():
                lanes.create(lane, {"model": "sim", "input": words, "previous_response_id": parent_id})
            while len(ended) < len(_FORKS):
                event = lanes.read()
                kind, lane = event["type"], event.get("stream_id", "")
                if kind == "response.output_text.delta":
                    pieces.append((lane, event["delta"]))
                elif kind == "response.completed":
                    ended[lane] = _text_of(event["response"])
                elif kind in ("response.failed", "error"):
                    raise DemoFailed(f"the fork on lane '{lane}' failed: {event}")
        self._print_forks(ended, pieces)
        if not all(_FIRST_WORDS in text for text in ended.values()):
            raise DemoFailed("a fork does not know the first message: the history did not arrive")

    def _print_forks(self, answers: dict[str, str], pieces: list[tuple[str, str]]) -> None:
        first = [(f"{lane}:{piece.strip()} ", _FORKS[lane][1]) for lane, piece in pieces[:_SHOWN_PIECES]]
        shown = Text.assemble(*first)
        self._console.print(Text("  arrives  ", "bold") + shown + Text("…"), soft_wrap=True)
        for lane, (words, colour) in _FORKS.items():
            self._console.print(Text(f"  {lane:9}", "bold") + Text(words), soft_wrap=True)
            self._console.print(Text(" " * 11) + Text(answers[lane], colour), soft_wrap=True)
        changes = sum(one[0] != other[0] for one, other in pairwise(pieces))
        self._console.print(f"           [dim]{len(pieces)} pieces of text, the lane changed {changes} times")


def _head(console: Console, title: str) -> None:
    console.print()
    console.print(f"━━ {title}", style="bold green", markup=False, soft_wrap=True)


def _suggest(console: Console, stage: Stage, response_id: str) -> None:
    url = stage.url
    _head(console, "Try it yourself")
    for about, line in (
        ("an answer as it arrives", _curl_create(url, input="Tell me something.", stream=True)),
        ("go on where the tour ended", _curl_create(url, input="And now?", previous_response_id=response_id)),
        ("what was stored", f"curl {url}/v1/responses/{response_id}"),
        ("what was counted", f"curl {stage.admin_url}/metrics"),
    ):
        console.print(f"  # {about}", style="dim", markup=False)
        console.print(f"  {line}", markup=False, soft_wrap=True)


def _curl_create(url: str, **fields: Any) -> str:
    body = msgspec.json.encode({"model": "sim", **fields}).decode()
    return f"curl -N {url}/v1/responses -H 'content-type: application/json' -d '{body}'"


@contextmanager
def _running(console: Console) -> Iterator[Stage]:
    """Start a stage; it is stopped, the gateway first, and its folder removed whatever happens."""
    console.print(f"[bold]Responses Gateway {__version__}[/] [dim]· demo")
    with ExitStack() as ending:
        folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="gateway-demo-")))
        stage = Stage(folder)
        with console.status("starting") if console.is_terminal else ExitStack():
            ending.callback(stage.simulator.stop)
            stage.simulator.start(f"{stage.simulator_url}/health")
            ending.callback(stage.gateway.stop)
            stage.gateway.start(f"{stage.url}/readyz")
        yield stage


def _say_goodbye(console: Console) -> None:
    console.print()
    console.print("That was the tour. Without --once, or DEMO=once, the gateway stays up.", style="bold")


def _wait(console: Console, stage: Stage) -> None:
    console.print()
    console.print("The gateway stays up. Ctrl-C stops it and removes what it stored.", style="bold")
    while True:
        stage.check()
        time.sleep(_WATCH_SECONDS)


def _text_of(response: dict[str, Any]) -> str:
    return "".join(part.get("text", "") for item in response["output"] for part in item.get("content", ()))


def _shorten(value: Any) -> Any:
    """Return a JSON value with its long strings cut."""
    if isinstance(value, str):
        return value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "…"
    if isinstance(value, list):
        return [_shorten(part) for part in value]
    if isinstance(value, dict):
        return {name: _shorten(part) for name, part in value.items()}
    return value


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


def _give_up(reason: str, log: str) -> NoReturn:
    print_error(reason)
    if log:
        click.secho("The end of its log:", dim=True, err=True)
        click.echo(log, err=True)
    sys.exit(1)
