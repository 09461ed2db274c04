"""Load on processes that share a database, one of which is killed while it works, and what became of the chains."""

import asyncio
import json
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from harness.client import client, open_create
from harness.upstream import Reply, Request
from integration.kills import CALLERS, Report, answer_by_model, find_completed, is_whole

INFERENCE_SECONDS = 0.02
TURNS_BEFORE, TURNS_AFTER = 24, 48
SECONDS = 30


async def answer_after_a_while(request: Request, reply: Reply) -> None:
    """Serve as a script: so that a kill always finds something in the making."""
    await asyncio.sleep(INFERENCE_SECONDS)
    await answer_by_model(request, reply)


class Failover:
    """Callers that each make one chain and, when a connection breaks, go on at the next port.

    Args:
        ports: where the processes listen; several may share one.

    Attributes:
        report: what callers saw.
        crossings: responses that continued what another port had made.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self.report = Report()
        self.crossings: list[str] = []
        self._ports = ports
        self._over = threading.Event()
        self._progress = threading.Condition()

    def run(self, kill: Callable[[], None]) -> Report:
        """Load, kill in the middle, and load on until every promise was put to the test."""
        with ThreadPoolExecutor(CALLERS) as callers:
            calling = [callers.submit(self._call, caller) for caller in range(CALLERS)]
            try:
                self._await_turns(TURNS_BEFORE)
                kill()
                self.report.kills += 1
                self._await_turns(len(self.report.told) + TURNS_AFTER)
            finally:
                self._over.set()
            for call in calling:
                call.result(SECONDS)
        return self.report

    def examine(self, port: int) -> None:
        """Hold what a process that lives has to say against what callers were told."""
        with client(port) as reader:
            told = self.report.told.items()
            self.report.lost = [id_ for id_, model in told if not is_whole(reader, id_, model)]

    def _port(self, at: int) -> int:
        return self._ports[at % len(self._ports)]

    def _await_turns(self, count: int) -> None:
        with self._progress:
            assert self._progress.wait_for(lambda: len(self.report.told) >= count, SECONDS), self.report

    def _call(self, caller: int) -> None:
        at, made_at, parent, turn = caller, caller, None, 0
        while not self._over.is_set():
            body: dict[str, Any] = {"model": f"{caller}-{turn}", "input": "hi", "stream": turn % 2 == 0}
            if parent is not None:
                body["previous_response_id"] = parent
            raw = exchange(self._port(at), body)
            turn += 1
            if raw and not raw.startswith(b"HTTP/1.1 200 "):
                self.report.refused.append(f"{json.dumps(body)}: {raw!r}")
                return
            if (response_id := find_completed(raw, stream=body["stream"])) is None:
                self.report.in_flight += 1
                at += 1
                continue
            with self._progress:
                self.report.told[response_id] = body["model"]
                if parent is not None and self._port(at) != self._port(made_at):
                    self.crossings.append(response_id)
                self._progress.notify()
            parent, made_at = response_id, at


def exchange(port: int, body: dict[str, Any]) -> bytes:
    """Return what arrives of one answer, up to its end or the process's."""
    arrived = b""
    try:
        with open_create(port, body, {"Connection": "close"}) as connection:
            while piece := connection.recv(65536):
                arrived += piece
    except OSError:
        pass
    return arrived
