"""Plays one scenario and records it, to its end or to where it failed."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final, TypeVar

from msgspec import Struct

from gateway import __version__
from gateway.cassette.format import Head
from gateway.cassette.proposals import FIXTURE
from gateway.cassette.recorder import Recorder, RecordingFailed, Sink
from gateway.cassette.redact import Redactor
from gateway.cassette.scenarios import Scenario
from gateway.cassette.socket import TransportFailed
from gateway.cassette.stage import LIBRARIES, Settings, Stage
from gateway.cassette.talk import ScenarioFailed

_Result = TypeVar("_Result")
_WHERE: Final[Mapping[type[Exception], str]] = MappingProxyType(
    {TransportFailed: "transport", ScenarioFailed: "scenario", RecordingFailed: "recorder"}
)


class Outcome(Struct, frozen=True):
    """How a recording went.

    Attributes:
        failure: why the scenario did not come to its end, if it did not.
        missed: what the recording does not show although it should; None if it shows all.
        counts: of what was recorded.
    """

    failure: str | None
    missed: str | None
    counts: Mapping[str, int]


def start_recorder(settings: Settings, sink: Sink, *, provider: str, scenario: str | None) -> Recorder:
    """Return a recorder that has written the head of a recording.

    Raises:
        RecordingFailed: it cannot be written.
    """
    recorder = Recorder(sink, Redactor([settings.key] if settings.key else []), settings.bounds)
    recorder.begin(
        Head(
            created_utc=datetime.now(UTC).isoformat(timespec="seconds"),
            tool={"name": "gateway record", "version": __version__},
            provider=provider,
            model=settings.model,
            sdk=LIBRARIES,
            fixture=FIXTURE,
            scenario=scenario,
        )
    )
    return recorder


async def record_scenario(
    scenario: Scenario,
    settings: Settings,
    sink: Sink,
    *,
    provider: str = "gateway",
    tell: Callable[[str], None] = lambda _line: None,
) -> Outcome:
    """Play a scenario and record it.

    Raises:
        RecordingFailed: the recording could not be written.
    """
    recorder = start_recorder(settings, sink, provider=provider, scenario=scenario.name)
    stage = Stage(settings, recorder, tell)
    missed, failure = await run_recorded(stage, scenario.play(stage))
    return Outcome(failure, missed, dict(recorder.counts))


async def run_recorded(stage: Stage, work: Awaitable[_Result]) -> tuple[_Result | None, str | None]:
    """Await what is played on a stage, end its connections, and write the recording's end.

    What fails becomes a record of its own; a bound that is met ends the recording in good order.

    Returns:
        The result, and why there is none.
    """
    recorder = stage.recorder
    try:
        try:
            result = await work
        except (TransportFailed, ScenarioFailed, RecordingFailed) as error:
            recorder.note_failure(None, _find_where(error), type(error).__name__, str(error))
            return None, str(error)
        except asyncio.CancelledError:
            recorder.note_failure(None, "driver", "Stopped", "the recording was stopped")
            raise
        finally:
            await stage.close()
    finally:
        recorder.finish()
    return result, None


def _find_where(error: Exception) -> str:
    return next(where for kind, where in _WHERE.items() if isinstance(error, kind))
