"""Scripted faults of inference servers and callers, played against a running gateway.

Each JSON file in `cases/` is one case (`cases/SCHEMA.md`); `cases/run_cases.py` plays both sides of it.
"""

import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from conformance.cases import run_cases
from harness.processes import Gateway, free_port

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    # The runner sends bodies above 1 MiB as one bytes object.
    pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning"),
]

FOLDER = Path(__file__).with_name("cases")
CASES: dict[str, Any] = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("[0-9]*.json"))}
# Cases that only a gateway can pass: without one the runner must fail them.
NEED_A_GATEWAY = (
    "018-delta-without-item-id",
    "020-incomplete-behind-completed",
    "024-error-event-top-level-fields",
    "026-upstream-eof-without-terminal",
    "036-upstream-200-garbage-json",
    "052-created-at-is-one-instant",
    "058-tool-roundtrip-by-previous-id",
    "059-unanswered-call-is-rejected",
    "067-store-false-not-stored",
    "069-streamed-response-retrievable",
    "089-secret-headers-not-forwarded",
    "092-ws-two-turns-store-false",
    "093-ws-store-false-after-reconnect",
    "095-ws-stream-id-multiplex",
    "096-ws-fifo-within-a-stream",
    "100-ws-incomplete-ends-the-turn",
    "106-ws-generate-false-warmup",
    "108-ws-codex-session",
)


@dataclass(frozen=True)
class Stage:
    """The upstream the runner scripts, and the gateway in front of it."""

    upstream: run_cases.Upstream
    gateway: Gateway

    async def play(self, case: dict[str, Any]) -> list[str]:
        """Play one case and return what went wrong."""
        faults, _, _ = await run_cases.run_case(case, self.upstream, self.gateway.url, {}, timeout=30)
        return faults


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Gateway]]:
    port = free_port()
    with Gateway(tmp_path_factory.mktemp("cases"), f"http://127.0.0.1:{port}") as gateway:
        yield port, gateway


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(running: tuple[int, Gateway]) -> AsyncIterator[Stage]:
    port, gateway = running
    upstream = run_cases.Upstream(port)
    await upstream.start()
    yield Stage(upstream, gateway)
    await upstream.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare() -> AsyncIterator[run_cases.Upstream]:
    upstream = run_cases.Upstream(free_port())
    await upstream.start()
    yield upstream
    await upstream.stop()


def slow_marked(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.slow) if CASES[name].get("slow") else name


@pytest.mark.parametrize("name", [slow_marked(name) for name in CASES])
async def test_case(stage: Stage, name: str) -> None:
    assert await stage.play(CASES[name]) == [], CASES[name]["why"]


@pytest.mark.parametrize("name", NEED_A_GATEWAY)
async def test_without_a_gateway_the_case_fails(bare: run_cases.Upstream, name: str) -> None:
    faults, _, _ = await run_cases.run_case(CASES[name], bare, f"http://127.0.0.1:{bare.port}", {}, timeout=10)
    assert faults != []


async def test_no_case_is_left_out() -> None:
    assert len(CASES) == 76
    assert all(case["id"] == name for name, case in CASES.items())
