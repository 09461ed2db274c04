"""Whether the gateway lives and whether it can work: for probes, and for people who ask why not."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from litestar import Response, get
from litestar.di import NamedDependency
from litestar.params import FromQuery
from msgspec import Struct

from gateway import __version__
from gateway.ports import Store, Upstream
from gateway.telemetry.names import SERVICE
from gateway.transport.paths import HEALTH_PATH, LIVEZ_PATH, READYZ_PATH, VERSION_PATH

_FINE = "as it should be"
_FAULTY = "not as it should be; the admin listener tells more"
_UNAVAILABLE_HEADERS = {"retry-after": "1"}


class Check(Struct, frozen=True):
    """One thing the gateway needs in order to work.

    Attributes:
        name: `draining`, `storage`, or `upstream <name>`.
        healthy: whether it is as it should be.
        detail: one line for people, never a secret.
    """

    name: str
    healthy: bool
    detail: str


class Report(Struct, frozen=True):
    """Every check, with the verdict.

    Attributes:
        ready: whether new requests can be served.
        checks: all checks, passed and failed.
    """

    ready: bool
    checks: tuple[Check, ...]


class Verdict(Struct, frozen=True):
    """The verdict alone.

    Attributes:
        ready: whether new requests can be served.
        reasons: why not, one line for each failed check.
    """

    ready: bool
    reasons: tuple[str, ...]


class Live(Struct, frozen=True):
    """The answer of a process that can answer."""

    live: bool = True


class Version(Struct, frozen=True):
    """What is running."""

    name: str
    version: str


@runtime_checkable
class Checks(Protocol):
    """Knows whether new requests can be served."""

    async def check(self) -> Report:
        """Return the state of everything that is needed for it. Takes a bounded time."""
        ...


class Readiness:
    """Knows whether new requests can be served.

    Args:
        store: asked at every check.
        upstreams: inference servers by name; their last known health counts. One healthy server is enough.
    """

    def __init__(self, store: Store, upstreams: Mapping[str, Upstream]) -> None:
        self._store = store
        self._upstreams = upstreams
        self._draining = False

    def begin_drain(self) -> None:
        """Report not ready from now on, so that load balancers turn away before the listener closes."""
        self._draining = True

    async def check(self) -> Report:
        """Return the state of everything the gateway needs. Takes as long as the store's bounded probe."""
        draining = Check("draining", not self._draining, "shutting down" if self._draining else "no")
        storage = await self._store.probe()
        upstreams = tuple(
            Check(f"upstream {name}", upstream.health.healthy, upstream.health.detail)
            for name, upstream in self._upstreams.items()
        )
        ready = draining.healthy and storage.healthy and any(upstream.healthy for upstream in upstreams)
        return Report(ready, (draining, Check("storage", storage.healthy, storage.detail), *upstreams))


class DiscreetChecks:
    """The same checks for those whom nobody has asked who they are: what fails, but not how.

    Args:
        checks: all that is known.
    """

    def __init__(self, checks: Checks) -> None:
        self._checks = checks

    async def check(self) -> Report:
        """Return the state of everything, in fixed words."""
        report = await self._checks.check()
        hidden = (Check(check.name, check.healthy, _FINE if check.healthy else _FAULTY) for check in report.checks)
        return Report(report.ready, tuple(hidden))


@get(LIVEZ_PATH)
async def livez() -> Live:
    """Answer as long as the event loop turns, and look at nothing else: only then does a restart help."""
    return Live()


@get(READYZ_PATH)
async def readyz(
    readiness: NamedDependency[Checks], verbose: FromQuery[str | None] = None
) -> Response[Report | Verdict]:
    """Answer 200 when new requests can be served and 503 with the reasons otherwise; `?verbose` lists every check."""
    report = await readiness.check()
    status, headers = (200, {}) if report.ready else (503, _UNAVAILABLE_HEADERS)
    if verbose is not None:
        return Response(report, status_code=status, headers=headers)
    return Response(_verdict(report), status_code=status, headers=headers)


@get(HEALTH_PATH)
async def health(readiness: NamedDependency[Checks]) -> Response[Verdict | dict[str, str]]:
    """Answer as inference servers do: 200 with an empty object, or 503."""
    report = await readiness.check()
    if report.ready:
        return Response({})
    return Response(_verdict(report), status_code=503, headers=_UNAVAILABLE_HEADERS)


@get(VERSION_PATH)
async def version() -> Version:
    """Name the running version."""
    return Version(SERVICE, __version__)


def _verdict(report: Report) -> Verdict:
    failed = (check for check in report.checks if not check.healthy)
    return Verdict(report.ready, () if report.ready else tuple(f"{check.name}: {check.detail}" for check in failed))
