"""All that is removed because it has had its time."""

from collections.abc import Iterator

from sqlalchemy import Engine

from gateway.storage.conversation_sweep import ConversationSweep, hidden_before
from gateway.storage.leases import remove_expired
from gateway.storage.retention import Cutoffs, Removed, Sweep, begin_alone

# Long after the last holder who was late could come back.
_LEASE_GRACE_SECONDS = 86_400.0


class Expiry:
    """Removes old trees, deleted responses, deleted conversations and forgotten leases.

    A live conversation has no time: it keeps its items, whatever becomes of the responses they came from.

    Args:
        engine: of the database.
        batch_responses: how many responses, or places in conversations, a transaction removes at most.
    """

    def __init__(self, engine: Engine, *, batch_responses: int) -> None:
        self._engine = engine
        self._responses = Sweep(engine, batch_responses=batch_responses)
        self._conversations = ConversationSweep(engine, batch_rows=batch_responses)

    def remove(self, cutoffs: Cutoffs) -> Iterator[Removed]:
        """Remove all that can go, yielding after each commit; whoever iterates may pause or stop there.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database refused a batch, which changed nothing.
        """
        yield from self._conversations.remove(hidden_before(cutoffs.deleted))
        yield from self._responses.remove(cutoffs)
        with begin_alone(self._engine) as connection:
            remove_expired(connection, grace_seconds=_LEASE_GRACE_SECONDS)

    def count(self, cutoffs: Cutoffs) -> Removed:
        """Return what `remove` would remove now; of conversations alone, not of what only they hold.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: the database does not answer.
        """
        hidden = self._conversations.count(hidden_before(cutoffs.deleted))
        return self._responses.count(cutoffs) + Removed(conversations=hidden)
