"""What is stored of a tree of agents."""

from msgspec import Struct


class StoredAgent(Struct, frozen=True, kw_only=True):
    """What one response changed about one agent.

    Attributes:
        path: the agent.
        parent_path: the agent that spawned it; None for the root.
        status: `running`, `interrupted`, `completed` or `errored`, for whoever looks at the table.
        state: JSON `{"version", "base", "items", "state"}`. With base `delta` the items go behind those that the
            response before had, with base `whole` they are all there are; `state` is everything else, always whole.
    """

    path: str
    status: str
    state: bytes
    parent_path: str | None = None
