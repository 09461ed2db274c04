"""Scripted faults of inference servers and callers, played against a running gateway.

Each JSON file in `cases/` is one case (`cases/SCHEMA.md`); `cases/run_cases.py` plays both sides of it.
"""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from conformance.cases import run_cases
from harness.processes import Gateway, free_port

from gateway.config.schema import ServerConfig, WebSocketConfig

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    # The runner sends bodies above 1 MiB as one bytes object.
    pytest.mark.filterwarnings("ignore:Sending a large body directly:ResourceWarning"),
]

FOLDER = Path(__file__).with_name("cases")
CASES: dict[str, Any] = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("[0-9]*.json"))}
SLOW = [name for name, case in CASES.items() if case.get("slow")]
HASTE = 10
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


@asynccontextmanager
async def staged(folder: Path, settings: Mapping[str, str] | None = None) -> AsyncIterator[Stage]:
    port = free_port()
    with Gateway(folder, f"http://127.0.0.1:{port}", settings) as gateway:
        upstream = run_cases.Upstream(port)
        await upstream.start()
        yield Stage(upstream, gateway)
        await upstream.stop()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with staged(tmp_path_factory.mktemp("cases")) as running:
        yield running


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bare() -> AsyncIterator[run_cases.Upstream]:
    upstream = run_cases.Upstream(free_port())
    await upstream.start()
    yield upstream
    await upstream.stop()


@pytest.mark.parametrize("name", [name for name in CASES if name not in SLOW])
async def test_case(stage: Stage, name: str) -> None:
    assert await stage.play(CASES[name]) == [], CASES[name]["why"]


@pytest.mark.parametrize("name", SLOW)
async def test_slow_case(tmp_path: Path, name: str) -> None:
    """What the defaults keep alive, with every time of the case and the gateway's own a tenth."""
    settings = {
        "websocket.ping_interval_seconds": str(WebSocketConfig().ping_interval_seconds / HASTE),
        "server.keepalive_seconds": str(ServerConfig().keepalive_seconds / HASTE),
    }
    async with staged(tmp_path, settings) as running:
        assert await running.play(hasten(CASES[name])) == [], CASES[name]["why"]


def hasten(case: Any) -> Any:
    """Return a case, or a part of one, whose times are a tenth."""
    if isinstance(case, list):
        return [hasten(part) for part in case]
    if not isinstance(case, dict):
        return case
    return {key: part / HASTE if key in {"hang", "sleep", "seconds"} else hasten(part) for key, part in case.items()}


@pytest.mark.parametrize("name", NEED_A_GATEWAY)
async def test_without_a_gateway_the_case_fails(bare: run_cases.Upstream, name: str) -> None:
    faults, _, _ = await run_cases.run_case(CASES[name], bare, f"http://127.0.0.1:{bare.port}", {}, timeout=10)
    assert faults != []


async def test_no_case_is_left_out() -> None:
    assert len(CASES) == 76
    assert all(case["id"] == name for name, case in CASES.items())
