"""Play rounds of tools with a real inference server and a real MCP server, and compare all that is known of them.

`PYTHONPATH=tests python -m conformance.real_rounds --upstream URL --model NAME` asks a gateway for each API of the
server over JSON, an event stream and a WebSocket. The model has to call the tool `add` of the server `docs`, which it
knows as `mcp__docs__add`. Between gateway and inference server every request and answer is recorded, so what a model
was asked, and what it was billed for, is not taken from the gateway.
"""

import argparse
import asyncio
import http.client
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from operator import itemgetter
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from conformance.verdict import judge_response
from harness.client import client, create
from harness.upstream import Reply, Request, Upstream
from harness.websocket import WebSocket
from integration.embedded import EmbeddedGateway
from integration.turns import anonymous, ask, final, judge
from tools.mcp.bench import RealServer

from gateway.config.loader import load_config

Json = dict[str, Any]
APIS = ("responses", "chat_completions")
WAYS = ("json", "sse", "websocket")
SERVER = Path(__file__).parents[1] / "tools/mcp/real_server.py"
FREE = {"type": "mcp", "server_label": "docs", "allowed_tools": ["add"], "require_approval": "never"}
ASKED = {**FREE, "require_approval": "always"}


@dataclass
class Round:
    """One inference as the server saw it: what it was asked, and its answer so far."""

    asked: Json
    told: bytes = b""

    @property
    def tokens(self) -> Json:
        """The usage, in the words of either API."""
        lines = [line[5:] for line in self.told.split(b"\n") if line.startswith(b"data:")] or [self.told]
        events = (json.loads(line) for line in reversed(lines) if b"[DONE]" not in line)
        usages = (event.get("usage") or event.get("response", {}).get("usage") for event in events)
        return next((usage for usage in usages if usage), {})


class Recorder:
    """Stands between gateway and inference server and notes what passes, unchanged.

    Attributes:
        rounds: every inference so far.
    """

    def __init__(self, upstream: str) -> None:
        self.rounds: list[Round] = []
        self._address = urlsplit(upstream).netloc

    async def forward(self, request: Request, reply: Reply) -> None:
        """Ask the real server the same, and pass its answer on as it comes."""
        connection = http.client.HTTPConnection(self._address, timeout=120)
        asked = {"Content-Type": "application/json"}
        await asyncio.to_thread(connection.request, "POST", request.path, request.raw, asked)
        answer = await asyncio.to_thread(connection.getresponse)
        await reply.head(answer.status, answer.headers["Content-Type"])
        self.rounds.append(made := Round(request.body))
        while piece := await asyncio.to_thread(answer.read1, 1 << 16):
            made.told += piece
            await reply.send(piece)
        connection.close()
        await reply.end()


def count_tokens(rounds: list[Round]) -> tuple[int, int]:
    """Return input and output tokens of all rounds together."""
    names = (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"))
    given, made = (sum(one.tokens.get(new, one.tokens.get(old, 0)) for one in rounds) for new, old in names)
    return given, made


def window(asked: Json) -> list[Json]:
    """Return what a model was shown, in either API; that an item is a message may be left unsaid."""
    shown = asked.get("messages", asked.get("input"))
    return [{"type": "message", **item} for item in shown]


class Player:
    """Asks one gateway in one way, and collects what does not hold.

    Attributes:
        faults: what was found, in words.
        way: how it asks.
    """

    def __init__(self, gateway: EmbeddedGateway, recorder: Recorder, way: str, common: Json) -> None:
        self.faults: list[str] = []
        self._gateway = gateway
        self._recorder = recorder
        self.way = way
        self._common = common

    def play(self, given: Any, **fields: Any) -> tuple[Json, list[Round]]:
        """Make one response, hold together what was told, stored and billed, and return it with its rounds."""
        before = len(self._recorder.rounds)
        response, events = self._ask({**self._common, "input": given, **fields})
        rounds = self._recorder.rounds[before:]
        with client(self._gateway.port) as caller:
            answer = caller.get(f"/v1/responses/{response['id']}")
        if response["store"]:
            stored = answer.json
            for name in response.keys() | stored.keys():
                self.expect(response.get(name) == stored.get(name), f"GET tells another {name}")
        else:
            self.expect(answer.status == 404, "it is stored")
        if events:
            ended = [event for event in events if event["type"] == "response.output_item.done"]
            done = [event["item"] for event in sorted(ended, key=itemgetter("output_index"))]
            self.expect(done == response["output"], "the streamed items are others than those of the end")
        usage = response["usage"]
        billed = (usage["input_tokens"], usage["output_tokens"])
        self.expect(billed == count_tokens(rounds), f"usage {billed}, the server told {count_tokens(rounds)}")
        self.expect(usage["total_tokens"] == sum(billed), "the total is no sum")
        self.expect(response["status"] == "completed", f"it is {response['status']}")
        return response, rounds

    def get(self, path: str) -> Json:
        """Read something from the gateway."""
        with client(self._gateway.port) as caller:
            return dict(caller.get(path).json)

    def post(self, path: str, body: Json) -> Json:
        """Make something in the gateway."""
        with client(self._gateway.port) as caller:
            return dict(caller.call("POST", path, json.dumps(body).encode()).json)

    def expect(self, holds: bool, fault: str) -> None:
        """Note a fault unless that holds."""
        if not holds:
            self.faults.append(fault)

    def _ask(self, body: Json) -> tuple[Json, list[Json]]:
        if self.way == "websocket":
            with WebSocket(self._gateway.port, timeout=120) as socket:
                events = ask(socket, body.pop("model"), body.pop("input"), **body)
            self.faults += judge(events)
            return final(events), events
        answer = create(self._gateway.port, {**body, "stream": self.way == "sse"})
        if answer.status != 200:
            raise SystemExit(f"{answer.status}: {answer.body!r}")
        if self.way == "json":
            self.faults += judge_response(answer.json)
            return answer.json, []
        self.faults += judge(answer.events)
        return answer.final, answer.events


Scenario = Callable[[Player, str], Any]


def of_type(response: Json, kind: str) -> list[Json]:
    return [item for item in response["output"] if item["type"] == kind]


def take(response: Json, kind: str) -> Json:
    """Return its one item of that type.

    Raises:
        LookupError: there is none, or there are several.
    """
    found = of_type(response, kind)
    if len(found) != 1:
        raise LookupError(f"{len(found)} items {kind} in {response['output']}")
    return found[0]


def call_and_go_on(player: Player, prompt: str) -> Any:
    """Two rounds with a call between them, then a turn that continues from them."""
    first, rounds = player.play(prompt, tools=[FREE])
    player.expect(len(rounds) == 2, f"{len(rounds)} rounds")
    listed, call = take(first, "mcp_list_tools"), take(first, "mcp_call")
    player.expect(call["output"] == "42", f"call {call}")
    second, (again, *_) = player.play("And now?", tools=[FREE], previous_response_id=first["id"])
    shown = window(rounds[-1].asked)
    player.expect(window(again.asked)[: len(shown)] == shown, "the continuation shows the model another history")
    player.expect(not of_type(second, "mcp_list_tools"), "it is listed again")
    return anonymous([listed, call])


def carry(player: Player, prompt: str) -> Any:
    """The same, where nothing is stored and the client sends all of it again."""
    first, rounds = player.play(prompt, tools=[FREE], store=False)
    said, more = ({"role": "user", "content": [{"type": "input_text", "text": text}]} for text in (prompt, "And now?"))
    given = [said, *first["output"], more]
    second, (again, *_) = player.play(given, tools=[FREE], store=False)
    shown = window(rounds[-1].asked)
    player.expect(window(again.asked)[: len(shown)] == shown, "what is sent again shows the model another history")
    player.expect(not of_type(second, "mcp_list_tools"), "it is listed again")
    return anonymous([take(first, "mcp_list_tools"), take(first, "mcp_call")])


def converse(player: Player, prompt: str) -> Any:
    """The same in a conversation, which then holds input and output of both turns."""
    conversation = player.post("/v1/conversations", {})["id"]
    first, rounds = player.play(prompt, tools=[FREE], conversation=conversation)
    second, (again, *_) = player.play("And now?", tools=[FREE], conversation=conversation)
    shown = window(rounds[-1].asked)
    player.expect(window(again.asked)[: len(shown)] == shown, "the conversation shows the model another history")
    held = player.get(f"/v1/conversations/{conversation}/items?order=asc&limit=100")["data"]
    made = [item for item in held if item["type"] != "message" or item["role"] != "user"]
    player.expect(made == first["output"] + second["output"], "the conversation holds other items")
    return anonymous([take(first, "mcp_list_tools"), take(first, "mcp_call")])


def approve(player: Player, prompt: str) -> Any:
    """A call that is approved in the turn after it."""
    first, rounds = player.play(prompt, tools=[ASKED])
    player.expect(len(rounds) == 1, f"{len(rounds)} rounds before the approval")
    request = take(first, "mcp_approval_request")
    given = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    second, _ = player.play([given], tools=[ASKED], previous_response_id=first["id"])
    call = take(second, "mcp_call")
    player.expect((call["output"], call["approval_request_id"]) == ("42", request["id"]), f"call {call}")
    return anonymous([request, call])


def decline(player: Player, prompt: str) -> Any:
    """A call that is declined, which the model is told."""
    first, _ = player.play(prompt, tools=[ASKED])
    request = take(first, "mcp_approval_request")
    given = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": False, "reason": "No."}
    second, rounds = player.play([given], tools=[ASKED], previous_response_id=first["id"])
    player.expect(not of_type(second, "mcp_call"), "it was called")
    player.expect("No." in str(window(rounds[0].asked)[-1]), "the model is not told why")
    return anonymous([request])


SCENARIOS: tuple[Scenario, ...] = (call_and_go_on, carry, converse, approve, decline)


@contextmanager
def build_gateway(
    api: str, upstream: str, database: str | None, settings: Mapping[str, str]
) -> Iterator[EmbeddedGateway]:
    """A gateway on a database of its own unless one is named."""
    with tempfile.TemporaryDirectory() as folder:
        own = {
            "upstream.url": upstream,
            "upstream.api": api,
            "storage.url": database or f"sqlite:///{folder}/gateway.db",
            "storage.auto_migrate": "always",
            "server.port": "0",
            "admin.enabled": "false",
            **settings,
        }
        config = load_config(None, {}, [f"{name}={value}" for name, value in own.items()]).config
        with EmbeddedGateway(config) as gateway:
            yield gateway


def play_all(arguments: argparse.Namespace, server: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of every scenario, in every way, with its faults."""
    common = {"model": arguments.model, **json.loads(arguments.fields)}
    recorder, firsts = Recorder(arguments.upstream), dict[Scenario, Any]()
    with Upstream() as between:
        between.otherwise(recorder.forward)
        between.route("/v1/chat/completions", recorder.forward)
        for api in APIS:
            with build_gateway(api, between.url, arguments.database, {"mcp.servers.docs.url": server}) as gateway:
                for way, scenario in product(WAYS, SCENARIOS):
                    player = Player(gateway, recorder, way, common)
                    try:
                        told = scenario(player, arguments.prompt)
                        player.expect(told == firsts.setdefault(scenario, told), "the first way tells other items")
                    except LookupError as missing:
                        player.faults.append(str(missing))
                    yield f"{api:17}{way:10}{scenario.__name__:15}", player.faults


def main(given: Sequence[str] | None = None) -> int:
    """Print a line for each scenario; return how many do not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--upstream", required=True, help="base URL of the inference server, without /v1")
    parser.add_argument("--model", required=True)
    parser.add_argument("--prompt", default="Use the tool add to add 17 and 25, then tell me the sum.")
    parser.add_argument("--fields", default="{}", help="further fields of each request, as a JSON object")
    parser.add_argument("--database", help="URL of a database; without it SQLite files that are removed again")
    server, failed = RealServer(SERVER), 0
    server.start()
    try:
        for name, faults in play_all(parser.parse_args(given), server.url):
            print(name, "; ".join(faults) or "ok", flush=True)
            failed += bool(faults)
    finally:
        server.stop()
    return failed


if __name__ == "__main__":
    sys.exit(bool(main()))
