"""The users of a load run: each asks in one way, one turn after the other, and reports what it was told."""

import secrets
from collections.abc import Iterator
from typing import ClassVar

import gevent
import msgspec
from http_caller import HttpCaller, authorize
from locust import User, task
from locust.user.task import LOCUST_STATE_STOPPING
from measure import FAILED, Turn
from plan import Plan
from socket_caller import SocketCaller
from witness import Witness

decode_plan = msgspec.json.Decoder(Plan).decode


class TurnFailed(Exception):
    """A turn failed; Locust counts it by its fault."""


class Caller(User):
    """A user of any kind.

    Attributes:
        kind: its name in the plan.
    """

    abstract = True
    kind: ClassVar[str]

    def on_start(self) -> None:
        options = self.environment.parsed_options
        self.plan = decode_plan(options.load_plan_text)
        self.model = options.load_model
        self.headers = authorize(self.environment.api_key)

    def wait_time(self) -> float:
        return self.plan.run.think_seconds

    @property
    def stopping(self) -> bool:
        """Whether nothing further is to be begun."""
        return self._state == LOCUST_STATE_STOPPING

    def compose(self, stream: bool = True, parent: str | None = None) -> tuple[dict[str, object], str]:
        """Return the body of the next request, and the prompt in it."""
        request = self.plan.request
        prompt = request.prompt.replace("{id}", secrets.token_hex(4))
        body = {"model": self.model, "input": prompt, "store": request.store, "stream": stream, **request.body}
        if parent is not None:
            body["previous_response_id"] = parent
        return body, prompt

    def watch(self, *prompts: str, lane: str | None = None) -> Witness:
        """Return a witness of a turn whose answer quotes these prompts, if the plan says that answers do."""
        request = self.plan.request
        expected = [*(prompts if request.echo else ()), *([request.expect] if request.expect else ())]
        return Witness(self.kind, lane, expected)

    def report(self, witness: Witness) -> bool:
        """Hand a turn on to where the run is measured, and tell whether it went well."""
        turn = witness.finish()
        if self.environment.api_key:
            # What a server says may repeat it.
            turn.detail = turn.detail.replace(self.environment.api_key, "***")
        self.environment.recorder.add(turn)
        for name, microseconds in _list_times(turn):
            self._fire(name, microseconds, turn)
        if turn.outcome == FAILED:
            # A server that refuses at once would be asked as fast as it can refuse.
            gevent.sleep(self.plan.run.failure_rest_seconds)
        return turn.outcome != FAILED

    def _fire(self, name: str, microseconds: float, turn: Turn) -> None:
        failed = TurnFailed(turn.fault) if turn.outcome == FAILED and name == "e2e" else None
        self.environment.events.request.fire(
            request_type=self.kind,
            name=name,
            response_time=microseconds / 1000,
            response_length=turn.tokens,
            exception=failed,
            context={},
        )


def _list_times(turn: Turn) -> Iterator[tuple[str, float]]:
    if turn.ack is not None:
        yield "ack", turn.ack
    if turn.ttft is not None:
        yield "ttft", turn.ttft
    if turn.gaps:
        yield "itl", sum(turn.gaps) / len(turn.gaps)
    yield "e2e", turn.e2e


class HttpUser(Caller):
    """Asks over HTTP, on a connection of its own."""

    abstract = True

    def on_start(self) -> None:
        super().on_start()
        self.caller = HttpCaller(self.host, self.headers, self.plan.run.timeout_seconds)

    def on_stop(self) -> None:
        self.caller.close()


class JsonUser(HttpUser):
    """Asks for whole answers."""

    kind = "json"

    @task
    def ask(self) -> None:
        body, prompt = self.compose(stream=False)
        witness = self.watch(prompt)
        self.caller.ask(body, witness)
        self.report(witness)


class SseUser(HttpUser):
    """Asks for event streams."""

    kind = "sse"

    @task
    def ask(self) -> None:
        body, prompt = self.compose()
        witness = self.watch(prompt)
        self.caller.ask(body, witness)
        self.report(witness)


class ChainCaller(Caller):
    """Goes through chains of turns, each of which continues the one before.

    Attributes:
        store: whether the gateway stores them, or only the connection remembers them.
    """

    abstract = True
    store: bool

    @task
    def go_through(self) -> None:
        first, parent = None, None
        for _ in range(self.plan.chain.turns):
            if self.stopping:
                return
            body, prompt = self.compose(parent=parent)
            body["store"] = self.store
            first = first or prompt
            witness = self.ask_one(body, self.watch(prompt, first))
            if not self.report(witness):
                return
            parent = witness.response.id

    def ask_one(self, body: dict[str, object], witness: Witness) -> Witness:
        """Have one turn answered and return who watched it."""
        raise NotImplementedError


class ChainUser(ChainCaller, HttpUser):
    """Goes through stored chains, each turn an event stream."""

    kind = "chain"
    store = True

    def ask_one(self, body: dict[str, object], witness: Witness) -> Witness:
        self.caller.ask(body, witness)
        return witness


class SocketUser(Caller):
    """Asks on a WebSocket of its own."""

    abstract = True

    def on_start(self) -> None:
        super().on_start()
        self.caller = SocketCaller(self.host, self.headers, self.plan.run.timeout_seconds)

    def on_stop(self) -> None:
        self.caller.close()

    def ask(self, body: dict[str, object], witness: Witness) -> None:
        """Begin a turn."""
        self.caller.ask({name: value for name, value in body.items() if name != "stream"}, witness)


class WebSocketUser(SocketUser):
    """Asks on one lane."""

    kind = "websocket"

    @task
    def go_on(self) -> None:
        body, prompt = self.compose()
        self.ask(body, self.watch(prompt))
        self.report(self.caller.wait())


class LanesUser(SocketUser):
    """Asks on several lanes at once, on each anew as soon as it is free."""

    kind = "lanes"

    @task
    def keep_busy(self) -> None:
        count = self.plan.lanes.count
        for number in range(count):
            self._begin(f"lane-{number}")
        running = count
        while running:
            witness = self.caller.wait()
            running -= 1
            if self.report(witness) and not self.stopping:
                self._begin(witness.lane)
                running += 1

    def _begin(self, lane: str | None) -> None:
        body, prompt = self.compose()
        self.ask(body, self.watch(prompt, lane=lane))


class WebSocketChainUser(ChainCaller, SocketUser):
    """Goes through chains of turns that are not stored: the connection remembers them."""

    kind = "websocket_chain"
    store = False

    def ask_one(self, body: dict[str, object], witness: Witness) -> Witness:
        self.ask(body, witness)
        return self.caller.wait()


USERS: tuple[type[Caller], ...] = (JsonUser, SseUser, WebSocketUser, LanesUser, ChainUser, WebSocketChainUser)
