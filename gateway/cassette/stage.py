"""Where a scenario is played: the server, what is asked of it, and the recording of all that is said."""

import ssl
from collections.abc import Callable
from importlib.metadata import version
from itertools import chain
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from gateway.cassette.bounds import Bounds
from gateway.cassette.dialogue import Dialogue, Event, Run, note_output
from gateway.cassette.exchange import post
from gateway.cassette.proposals import TOOL
from gateway.cassette.recorder import Recorder
from gateway.cassette.shapes import is_event
from gateway.cassette.socket import Socket
from gateway.cassette.talk import ScenarioFailed, Talk
from gateway.protocol.sse import DONE_DATA, SseDecoder

BETA_HEADER: Final = "OpenAI-Beta"
BETA: Final = "responses_multi_agent=v1"
LIBRARIES: Final = f"websockets {version('websockets')}, httpcore2 {version('httpcore2')}"
_ROUTE: Final = "/v1/responses"


class Settings(Struct, frozen=True, kw_only=True):
    """What is the same for all scenarios.

    Attributes:
        url: of the server, with any of the schemes http, https, ws, wss.
        model: asked for; None leaves it to each request.
        key: sent as bearer token; None sends none.
        beta: whether the header of the beta of multi-agent runs is sent.
        store: sent as it is; None leaves it out.
        prompt: replaces what a scenario says first.
        tls: how certificates are checked; None for the authorities that the system trusts.
        bounds: of time and size.
    """

    url: str
    model: str | None = None
    key: str | None = None
    beta: bool = True
    store: bool | None = True
    prompt: str | None = None
    tls: ssl.SSLContext | None = None
    bounds: Bounds = Bounds()


class Stage:
    """Opens connections for a scenario and remembers the responses of all of them.

    Args:
        settings: the server and what is asked of it.
        recorder: is told of everything.
        tell: told of each thing worth showing, one line each.
    """

    def __init__(
        self, settings: Settings, recorder: Recorder, tell: Callable[[str], None] = lambda _line: None
    ) -> None:
        self.settings = settings
        self.recorder = recorder
        self.tell = tell
        self._known: dict[str, Run] = {}
        self._talks: list[Talk] = []

    async def connect(self) -> Talk:
        """Open a WebSocket."""
        settings = self.settings
        socket = Socket(find_endpoint(settings.url, is_socket=True), self.recorder, settings.bounds)
        await socket.connect(self._headers(), settings.tls)
        talk = Talk(socket, settings.bounds, self.tell, Dialogue(self._known))
        self._talks.append(talk)
        return talk

    async def post(self, body: Event) -> Run:
        """Make a response by HTTP, streamed or not as the body says, and return what came of it.

        Raises:
            TransportFailed: there is no whole answer.
            ScenarioFailed: the answer is neither JSON nor a stream of events.
        """
        self.tell("> POST" + (" with stream" if body.get("stream") else ""))
        headers = {**self._headers(), "content-type": "application/json"}
        url = find_endpoint(self.settings.url, is_socket=False)
        content = msgspec.json.encode(body)
        status, received, answer = await post(
            url, headers, content, recorder=self.recorder, bounds=self.settings.bounds, tls=self.settings.tls
        )
        run = read_answer(body, status, received.get("content-type", ""), answer, self._known)
        self.tell(f"< {status} {(run.response.get('status') or '')}".rstrip())
        if run.id is not None:
            self._known[run.id] = run
        return run

    def remember(self, talk: Talk) -> None:
        """Let later connections know the responses of this one."""
        self._known.update(talk.dialogue.known)

    async def close(self) -> None:
        """End every connection that is still open."""
        for talk in self._talks:
            await talk.close()

    def build_body(self, **fields: Any) -> Event:
        """Return the body of a create: model and storage as given, then the fields."""
        body: Event = {}
        if self.settings.model is not None:
            body["model"] = self.settings.model
        if self.settings.store is not None:
            body["store"] = self.settings.store
        body.update(fields)
        if self.settings.prompt is not None and isinstance(body.get("input"), str):
            body["input"] = self.settings.prompt
        return body

    def build_tree_body(self, prompt: str, **fields: Any) -> Event:
        """Return the body of a create that lets several agents work and call `get_proposal`."""
        return self.build_body(multi_agent={"enabled": True}, tools=[TOOL], input=prompt, **fields)

    def _headers(self) -> dict[str, str]:
        headers = {"user-agent": "gateway-record"}
        if self.settings.key:
            headers["authorization"] = f"Bearer {self.settings.key}"
        if self.settings.beta:
            headers[BETA_HEADER] = BETA
        return headers


def find_endpoint(url: str, *, is_socket: bool) -> str:
    """Return where responses are made, from a server's address, its `/v1`, or the whole URL."""
    parts = urlsplit(url)
    secure = parts.scheme in {"https", "wss"}
    scheme = ("wss" if secure else "ws") if is_socket else ("https" if secure else "http")
    path = parts.path.rstrip("/")
    if not path.endswith(_ROUTE):
        path = path.removesuffix("/v1") + _ROUTE
    return urlunsplit(SplitResult(scheme, parts.netloc, path, parts.query, ""))


def read_answer(body: Event, status: int, content_type: str, answer: bytes, known: dict[str, Run]) -> Run:
    """Return what came of a create that was posted.

    Raises:
        ScenarioFailed: the answer is neither JSON nor a stream of events.
    """
    dialogue = Dialogue(known)
    dialogue.send({"type": "response.create", **body})
    run = dialogue.runs[0]
    try:
        if content_type.startswith("text/event-stream"):
            for event in read_events(answer):
                dialogue.receive(event)
        else:
            value = msgspec.json.decode(answer, type=dict[str, Any])
            terminal = {"type": "response.completed", "response": value}
            if status == 200 and is_event(terminal):
                run.id, run.terminal = value.get("id"), terminal
                note_output(run)
            else:
                run.error = value
    except (msgspec.DecodeError, RecursionError):
        raise ScenarioFailed(f"the answer with status {status} is no JSON") from None
    return run


def read_events(answer: bytes) -> list[Event]:
    """Return the events of a stream.

    Raises:
        msgspec.DecodeError: one is no JSON object.
        RecursionError: one is nested too deep.
    """
    decoder = SseDecoder(len(answer) + 1)
    blocks = chain(decoder.feed(answer), decoder.end())
    return [msgspec.json.decode(data, type=dict[str, Any]) for _, data in blocks if data and data != DONE_DATA]
