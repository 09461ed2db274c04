"""`gateway demo`: a tour of a running gateway, with a simulated inference server behind it."""

import signal
import sys
import time
from itertools import pairwise
from types import FrameType
from typing import Any, NoReturn

import msgspec
import rich_click as click
from rich.console import Console
from rich.text import Text

from gateway.cli.agents_tour import AgentsTour, build_agents_stage
from gateway.cli.children import ChildFailed
from gateway.cli.errors import print_error
from gateway.cli.stage import Client, Commands, Stage, TourFailed, open_stage, print_title, text_of, write_curl

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


@click.command("demo")
@click.option("--once", is_flag=True, help="End after the tour instead of waiting for Ctrl-C.")
@click.option("--agents", is_flag=True, help="Show several agents in one response instead, and what one can add to it.")
def command(*, once: bool, agents: bool) -> None:
    """Show a gateway at work: an answer, what was stored, two forks on one WebSocket, a round of a tool.

    Starts a simulated inference server and a gateway on SQLite in a temporary folder, and removes all of it in the
    end. Ports in use are replaced by free ones. Exit codes: 0 when every step went well, 1 with the reason otherwise.
    """
    # Shells start background jobs with SIGINT ignored.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    console = Console(highlight=False)
    try:
        with open_stage(console, build_agents_stage if agents else Stage) as stage:
            commands = (AgentsTour if agents else Tour)(console, stage).run()
            if once:
                _say_goodbye(console)
            else:
                _suggest(console, commands)
                _wait(console, stage)
    except KeyboardInterrupt:
        console.print("\nStopped.", style="dim")
    except ChildFailed as failure:
        _give_up(str(failure), failure.log)


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

    def run(self) -> Commands:
        """Give the whole tour and return command lines to go on with.

        Raises:
            ChildFailed: a step failed; carries the gateway's log.
        """
        with self._stage.explain_failure(self._console):
            self._stage.show(self._console)
            print_title(self._console, "A streamed answer, token by token")
            first = self._ask(_FIRST_WORDS)
            print_title(self._console, "The same conversation, continued by previous_response_id alone")
            second = self._ask(_NEXT_WORDS, previous_response_id=first["id"])
            if _FIRST_WORDS not in text_of(second):
                raise TourFailed("the second answer does not know the first message: the history did not arrive")
            print_title(self._console, f"What was stored: GET /v1/responses/{second['id']}")
            self._show_stored(second)
            print_title(self._console, "Two forks of it at the same time: lanes of one WebSocket")
            self._show_forks(second["id"])
            title = "A tool: the model calls it, you run it, the model goes on with what it returned"
            print_title(self._console, title)
            self._show_tool()
        url = self._stage.url
        return (
            ("an answer as it arrives", write_curl(url, input="Tell me something.", stream=True)),
            ("go on where the tour ended", write_curl(url, input="And now?", previous_response_id=second["id"])),
            ("what was stored", f"curl {url}/v1/responses/{second['id']}"),
            ("what was counted", f"curl {self._stage.admin_url}/metrics"),
        )

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
            raise TourFailed(f"the stream ended with {last.get('type', 'nothing')}: {last.get('response', last)}")
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
            raise TourFailed("the model did not call the tool")
        result = str(sum(msgspec.json.decode(call["arguments"]).values()))
        output = {"type": "function_call_output", "call_id": call["call_id"], "output": result}
        answered = self._ask(f"{call['name']} returned {result}", previous_response_id=asked["id"], input=[output])
        if result not in text_of(answered):
            raise TourFailed("the model does not know what the tool returned")

    def _show_stored(self, expected: dict[str, Any]) -> None:
        stored = self._client.retrieve(f"/v1/responses/{expected['id']}")
        if stored != expected:
            raise TourFailed("the stored response is not the one that was streamed")
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
                    ended[lane] = text_of(event["response"])
                elif kind in ("response.failed", "error"):
                    raise TourFailed(f"the fork on lane '{lane}' failed: {event}")
        self._print_forks(ended, pieces)
        if not all(_FIRST_WORDS in text for text in ended.values()):
            raise TourFailed("a fork does not know the first message: the history did not arrive")

    def _print_forks(self, answers: dict[str, str], pieces: list[tuple[str, str]]) -> None:
        first = [(f"{lane}:{piece.strip()} ", _FORKS[lane][1]) for lane, piece in pieces[:_SHOWN_PIECES]]
        shown = Text.assemble(*first)
        self._console.print(Text("  arrives  ", "bold") + shown + Text("…"), soft_wrap=True)
        for lane, (words, colour) in _FORKS.items():
            self._console.print(Text(f"  {lane:9}", "bold") + Text(words), soft_wrap=True)
            self._console.print(Text(" " * 11) + Text(answers[lane], colour), soft_wrap=True)
        changes = sum(one[0] != other[0] for one, other in pairwise(pieces))
        self._console.print(f"           [dim]{len(pieces)} pieces of text, the lane changed {changes} times")


def _suggest(console: Console, commands: Commands) -> None:
    print_title(console, "Try it yourself")
    for about, line in commands:
        console.print(f"  # {about}", style="dim", markup=False)
        console.print(f"  {line}", markup=False, soft_wrap=True)


def _say_goodbye(console: Console) -> None:
    console.print()
    console.print("That was the tour. Without --once, or DEMO=once, the gateway stays up.", style="bold")


def _wait(console: Console, stage: Stage) -> None:
    console.print()
    console.print("The gateway stays up. Ctrl-C stops it and removes what it stored.", style="bold")
    while True:
        stage.check()
        time.sleep(_WATCH_SECONDS)


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
