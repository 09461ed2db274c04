"""A gateway that is killed at random moments under load, again and again, and what is left of its promises."""

import json
import random
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from harness.client import Client, client, open_create
from harness.engine import says
from harness.upstream import Reply, Request
from integration.databases import DatabaseGateway

CALLERS = 8
LIFETIME_SECONDS = (0.05, 0.4)
_COMPLETED = re.compile(rb'event: response\.completed\ndata: \{[^\n]*?"id":"(resp_[0-9a-f]{32})"[^\n]*\n\n')


def text_for(model: str) -> str:
    """What the inference server answers for a model, so that every kept answer can be checked by its model."""
    return f"{model}: {'never half of it, ' * 20}"


async def answer_by_model(request: Request, reply: Reply) -> None:
    """Serve as a script: the text of the model, as a stream or as JSON."""
    await says(text_for(request.body["model"]))(request, reply)


@dataclass
class Report:
    """What a campaign found.

    Attributes:
        kills: how often the gateway was killed.
        in_flight: requests that a kill cut off before their end was seen.
        told: id to model of each response whose completion a caller saw.
        stored: responses in the database at the end.
        refused: requests that got another status than 200, among them each continuation of a lost response.
        lost: told responses that cannot be read any more.
        half_stored: responses that are visible without being whole.
        integrity: faults the database itself reports, and items without their response.
    """

    kills: int = 0
    in_flight: int = 0
    told: dict[str, str] = field(default_factory=dict)
    stored: int = 0
    refused: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    half_stored: list[str] = field(default_factory=list)
    integrity: list[str] = field(default_factory=list)

    @property
    def broken(self) -> list[str]:
        """Every broken promise."""
        return [*self.refused, *self.lost, *self.half_stored, *self.integrity]

    def __str__(self) -> str:
        rows = {
            "kills": self.kills,
            "requests cut off by a kill": self.in_flight,
            "responses a client saw completed": len(self.told),
            "responses stored": self.stored,
            "requests refused": len(self.refused),
            "responses lost": len(self.lost),
            "responses half stored": len(self.half_stored),
            "faults of integrity": len(self.integrity),
        }
        return "\n".join(f"{name:<34}{number:>8}" for name, number in rows.items())


class Campaign:
    """Starts the gateway, loads it and kills it, as often as asked; the inference server answers by model.

    Args:
        gateway: not started yet, on an empty database.
        kills: how often.
        seed: chooses the moments.
        lifetime: shortest and longest time under load, in seconds.
    """

    def __init__(
        self, gateway: DatabaseGateway, kills: int, seed: int, lifetime: tuple[float, float] = LIFETIME_SECONDS
    ) -> None:
        self.report = Report()
        self._gateway = gateway
        self._kills = kills
        self._random = random.Random(seed)
        self._lifetime = lifetime
        self._latest: dict[int, str] = {}

    def run(self) -> Report:
        """Kill, start a last time and examine everything."""
        with ThreadPoolExecutor(CALLERS) as callers:
            for number in range(self._kills):
                self._gateway.start("/readyz")
                calling = [callers.submit(self._call, number, caller) for caller in range(CALLERS)]
                if number % 2 == 0:
                    self._await_told(len(self.report.told) + CALLERS)
                time.sleep(self._random.uniform(*self._lifetime))
                self._gateway.kill()
                self.report.kills += 1
                for call in calling:
                    call.result(30)
        with self._gateway:
            self.examine()
        return self.report

    def _await_told(self, number: int) -> None:
        """Wait until there is something to lose, however slow the machine is."""
        deadline = time.monotonic() + 30
        while len(self.report.told) < number:
            assert time.monotonic() < deadline, "the gateway completes no responses"
            time.sleep(0.005)

    def examine(self) -> None:
        """Hold what the running gateway and its database have against what callers were told."""
        report = self.report
        kept = {str(id_): str(model) for id_, model in self._gateway.query("SELECT id, model FROM responses")}
        report.stored = len(kept)
        report.lost = [id_ for id_ in report.told if id_ not in kept]
        with client(self._gateway.port) as reader:
            report.half_stored = [id_ for id_, model in kept.items() if not is_whole(reader, id_, model)]
        orphans = "SELECT row_id FROM items WHERE response_id IS NULL OR response_id NOT IN (SELECT id FROM responses)"
        report.integrity = [f"item {row_id} belongs to no response" for (row_id,) in self._gateway.query(orphans)]
        if self._gateway.on_sqlite:
            report.integrity += [said for (said,) in self._gateway.query("PRAGMA integrity_check") if said != "ok"]

    def _call(self, number: int, caller: int) -> None:
        """Create one response after the other until the gateway is gone; the first continues from before the kill."""
        parent = self._latest.get(caller)
        for turn in count():
            body: dict[str, Any] = {"model": f"{number}-{caller}-{turn}", "input": "hi", "stream": turn % 2 == 0}
            if parent is not None:
                body["previous_response_id"] = parent
                parent = None
            raw = b"".join(self._exchange(body))
            if raw and not raw.startswith(b"HTTP/1.1 200 "):
                self.report.refused.append(f"{body}: {raw!r}")
                return
            response_id = find_completed(raw, stream=body["stream"])
            if response_id is None:
                self.report.in_flight += 1
                return
            self.report.told[response_id] = body["model"]
            self._latest[caller] = response_id

    def _exchange(self, body: dict[str, Any]) -> Iterator[bytes]:
        """Yield what arrives of one answer, up to its end or the gateway's."""
        try:
            with open_create(self._gateway.port, body, {"Connection": "close"}) as connection:
                while piece := connection.recv(65536):
                    yield piece
        except OSError:
            return


def find_completed(raw: bytes, *, stream: bool) -> str | None:
    """Return the id of the response whose completion the caller has seen in full, if any."""
    if stream:
        found = _COMPLETED.search(raw)
        return found[1].decode() if found else None
    try:
        return str(json.loads(raw.partition(b"\r\n\r\n")[2])["id"])
    except ValueError:
        return None


def is_whole(reader: Client, response_id: str, model: str) -> bool:
    """Tell whether a response is read as it was made, its input included."""
    answer = reader.get(f"/v1/responses/{response_id}")
    if answer.status != 200 or answer.json["status"] != "completed":
        return False
    return [part["text"] for item in answer.json["output"] for part in item["content"]] == [text_for(model)]
