"""What one connection remembers: the latest response of each lane, with all that came before it.

A continuation of what is remembered asks the database nothing, and works for responses that are not stored. The memory
ends with the connection.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Self
from weakref import WeakSet

from gateway.config.schema import WebSocketConfig
from gateway.ports import StoredAgent, StoredItem
from gateway.protocol.errors import ResourceLimitExceeded, Unavailable
from gateway.telemetry.metrics import Metrics


class Checkpoint:
    """A response that can be continued.

    Args:
        response_id: its id.
        items: its effective input and its output, oldest first.
        stored: whether the database has it too.
        tree: the agents that each response of the chain changed, if it is one of trees; they hold all items then.

    Attributes:
        bytes: the JSON of the items, and the states of the agents.
        dropped: it was deleted before it could be continued.
    """

    __slots__ = ("bytes", "dropped", "holders", "items", "response_id", "stored", "tree")

    def __init__(
        self,
        response_id: str,
        items: Sequence[StoredItem],
        *,
        stored: bool,
        tree: Sequence[StoredAgent] | None = None,
    ) -> None:
        self.response_id = response_id
        self.items = tuple(items)
        self.stored = stored
        self.tree = tree
        self.bytes = sum([len(item.data) for item in self.items])
        if tree is not None:
            self.bytes += sum(len(agent.state) for agent in tree)
        # Lanes and creates that need it; it counts as long as there are any.
        self.holders = 0
        self.dropped = False


class Session:
    """The checkpoints of one connection, within bounds.

    Args:
        bounds: how much it may hold, and when it forgets.
        metrics: what is counted.

    Attributes:
        bytes: what it holds now.
        committing: what has been made ready and is not published yet.
    """

    def __init__(self, bounds: WebSocketConfig, metrics: Metrics) -> None:
        self.bytes = 0
        self.committing: set[Checkpoint] = set()
        self._bounds = bounds
        self._metrics = metrics
        self._load = metrics.socket_load.session_bytes
        self._latest: dict[str | None, Checkpoint] = {}

    def begin(self, lane: str | None, parent_id: object) -> "Continuation":
        """Begin a create on a lane.

        Args:
            lane: the name of the lane; None for the default lane.
            parent_id: the response it says it continues, as it came.
        """
        return Continuation(self, lane, parent_id)

    def close(self) -> None:
        """Forget everything: the connection has ended."""
        for lane in list(self._latest):
            self.forget(lane)

    def drop(self, response_id: str) -> None:
        """Forget a response that has been deleted; what continues from it now goes on."""
        for lane, kept in list(self._latest.items()):
            if kept.response_id == response_id:
                self.forget(lane)
        for prepared in self.committing:
            prepared.dropped |= prepared.response_id == response_id

    def find(self, response_id: object) -> Checkpoint | None:
        """Return the response if it is the latest of any lane."""
        return next((kept for kept in self._latest.values() if kept.response_id == response_id), None)

    def latest(self, lane: str | None) -> Checkpoint | None:
        """Return the latest response of a lane."""
        return self._latest.get(lane)

    def breach(self, checkpoint: Checkpoint) -> ResourceLimitExceeded | None:
        """Return what forbids to hold a further checkpoint, by the key of the bound."""
        bounds = self._bounds
        if len(checkpoint.items) > bounds.max_checkpoint_items:
            limit = bounds.max_checkpoint_items
            return ResourceLimitExceeded(
                "max_checkpoint_items",
                limit,
                f"With this response its history exceeds [websocket] max_checkpoint_items ({limit} items), "
                "and nothing else would keep it; let it be stored, or begin a new chain.",
            )
        if checkpoint.bytes > bounds.max_checkpoint_bytes:
            limit = bounds.max_checkpoint_bytes
            return ResourceLimitExceeded(
                "max_checkpoint_bytes",
                limit,
                f"With this response its history exceeds [websocket] max_checkpoint_bytes ({limit} bytes), "
                "and nothing else would keep it; let it be stored, or begin a new chain.",
            )
        if self.bytes + checkpoint.bytes > bounds.max_session_bytes:
            limit = bounds.max_session_bytes
            return ResourceLimitExceeded(
                "max_session_bytes",
                limit,
                f"The response's history does not fit beside the others of this connection, of which "
                f"[websocket] max_session_bytes ({limit} bytes) are kept; let it be stored, or use fewer lanes.",
            )
        return None

    def hold(self, checkpoint: Checkpoint) -> None:
        """Count one more user of a checkpoint."""
        checkpoint.holders += 1
        if checkpoint.holders == 1:
            self.bytes += checkpoint.bytes
            self._load.move(checkpoint.bytes)

    def release(self, checkpoint: Checkpoint) -> None:
        """Count one user less."""
        checkpoint.holders -= 1
        if not checkpoint.holders:
            self.bytes -= checkpoint.bytes
            self._load.move(-checkpoint.bytes)

    def advance(self, lane: str | None, checkpoint: Checkpoint | None) -> None:
        """Make a checkpoint the latest of a lane; None when the latest one could not be kept."""
        self.forget(lane)
        if checkpoint is not None:
            self._latest[lane] = checkpoint
            self.hold(checkpoint)

    def forget(self, lane: str | None) -> None:
        """Forget the latest response of a lane, if there is one."""
        kept = self._latest.pop(lane, None)
        if kept is not None:
            self.release(kept)

    def evict(self, lane: str | None, response_id: object) -> None:
        """Forget a response because its continuation failed, if it is the latest of that lane and the bounds say so."""
        kept = self._latest.get(lane)
        if kept is None or kept.response_id != response_id or self._bounds.evict_parent_on_failure == "never":
            return
        self.forget(lane)
        self.count("evicted")

    def count(self, outcome: str) -> None:
        """Count what became of a checkpoint: `kept`, `too_large` or `evicted`."""
        self._metrics.defer(self._metrics.checkpoints_total.labels(outcome))

    def count_lookup(self, outcome: str) -> None:
        """Count a continuation that was found here (`hit`) or not (`miss`)."""
        self._metrics.defer(self._metrics.session_lookups_total.labels(outcome))


class Sessions:
    """The sessions of the process that are open.

    Args:
        bounds: those of each session that begins from now on.
        metrics: what is counted.
    """

    def __init__(self, bounds: WebSocketConfig, metrics: Metrics) -> None:
        self._bounds = bounds
        self._metrics = metrics
        self._open: WeakSet[Session] = WeakSet()

    def reconfigure(self, bounds: WebSocketConfig) -> None:
        """Use other bounds for sessions that begin from now on."""
        self._bounds = bounds

    def open(self) -> Session:
        """Return the memory of a new connection, which closes it at its end."""
        session = Session(self._bounds, self._metrics)
        self._open.add(session)
        return session

    def drop(self, response_id: str) -> None:
        """Forget a response that has been deleted, on whichever connection it was made."""
        for session in self._open:
            session.drop(response_id)


class Continuation:
    """What one create does with the session, from its start to its end, as a `with` block.

    A block that ends without having published is a failure, unless it was cancelled or could not be begun: who is told
    to come back later must find what he continues.

    Args:
        session: of the connection.
        lane: the lane the create runs on.
        parent_id: the response it says it continues, as it came.
    """

    __slots__ = ("_lane", "_parent", "_parent_id", "_prepared", "_published", "_session")

    def __init__(self, session: Session, lane: str | None, parent_id: object) -> None:
        self._session = session
        self._lane = lane
        self._parent_id = parent_id
        self._parent: Checkpoint | None = None
        self._prepared: Checkpoint | None = None
        self._published = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._prepared is not None:
            self._session.committing.discard(self._prepared)
        for held in (self._parent, self._prepared):
            if held is not None:
                self._session.release(held)
        self._parent = self._prepared = None
        failed = kind is None or (issubclass(kind, Exception) and not issubclass(kind, Unavailable))
        if failed and not self._published:
            self._session.evict(self._lane, self._parent_id)

    def find_parent(self, response_id: str) -> Checkpoint | None:
        """Return the response to be continued if the session has it, and keep it until the create ends."""
        parent = self._session.find(response_id)
        self._session.count_lookup("miss" if parent is None else "hit")
        if parent is not None:
            self._parent = parent
            self._session.hold(parent)
        return parent

    def prepare(self, checkpoint: Checkpoint, *, needed: bool = True) -> None:
        """Make room for what the create has made, before it is committed.

        Args:
            checkpoint: what that is.
            needed: whether nothing else keeps its items, unless the response is stored.

        Raises:
            ResourceLimitExceeded: there is none, and the database will not have it either.
        """
        breach = self._session.breach(checkpoint)
        if breach is None:
            self._prepared = checkpoint
            self._session.hold(checkpoint)
            self._session.committing.add(checkpoint)
            return
        self._session.count("too_large")
        if needed and not checkpoint.stored:
            raise breach

    def publish(self) -> None:
        """Let the lane go on from here; what is stored but too large to be remembered is read from the database."""
        self._published = True
        kept = None if self._prepared is None or self._prepared.dropped else self._prepared
        self._session.advance(self._lane, kept)
        if kept is not None:
            self._session.count("kept")
