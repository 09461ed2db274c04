"""Background responses where there is no database."""

from collections.abc import Sequence

from gateway.ports import (
    Claim,
    EventBatch,
    EventSweep,
    RunBegin,
    RunCancel,
    RunEnd,
    RunHandover,
    RunLog,
    RunStart,
    RunState,
    RunTakeover,
    UnfinishedRun,
)
from gateway.protocol.errors import StorageUnavailable


class NoRuns:
    """`ports.BackgroundRuns` that takes none and has none."""

    async def begin(self, begin: RunBegin) -> None:
        """Refuse the response.

        Raises:
            StorageUnavailable: always.
        """
        raise StorageUnavailable(f"{begin.response.id} cannot be made on its own: there is no database.")

    async def start(self, start: RunStart) -> bool:  # noqa: ARG002
        """Say that it is not there."""
        return False

    async def log(self, log: RunLog) -> bool:  # noqa: ARG002
        """Say that it is not there."""
        return False

    async def end(self, end: RunEnd) -> bool:  # noqa: ARG002
        """Say that it is not there."""
        return False

    async def cancel(self, cancel: RunCancel) -> None:
        """Do nothing."""

    async def state(self, principal: str, response_id: str) -> RunState | None:  # noqa: ARG002
        """Find none."""
        return None

    async def events(self, principal: str, response_id: str, after: int, *, limit: int) -> Sequence[EventBatch]:  # noqa: ARG002
        """Find none."""
        return ()

    async def find_cancelled(self, holder: str) -> Sequence[str]:  # noqa: ARG002
        """Find none."""
        return ()

    async def find_orphans(self, holder: str, *, limit: int) -> Sequence[Claim]:  # noqa: ARG002
        """Find none."""
        return ()

    async def take_over(self, takeover: RunTakeover) -> Claim | None:  # noqa: ARG002
        """Find none."""
        return None

    async def load(self, claim: Claim) -> UnfinishedRun | None:  # noqa: ARG002
        """Find none."""
        return None

    async def hand_over(self, handover: RunHandover) -> None:
        """Do nothing."""

    async def sweep(self, sweep: EventSweep) -> int:  # noqa: ARG002
        """Find none."""
        return 0
