"""What became of actions, waits and injected outputs."""

from msgspec import Struct

from gateway.protocol.agents.mail import Mail


class Outcome(Struct, frozen=True, kw_only=True):
    """What an action did.

    Attributes:
        output: text of its output; None for a wait that goes on: its output comes from `Tree.resolve_waits`.
        delivered: mail that was put into its recipient's history, to be told before the output.
        spawned: path of the agent that was made.
        cut: path of an agent whose running inference must be cut; `Tree.interrupt` once that has ended.
    """

    output: str | None
    delivered: tuple[Mail, ...] = ()
    spawned: str | None = None
    cut: str | None = None


class ResolvedWait(Struct, frozen=True):
    """A `wait_agent` that has its output.

    Attributes:
        agent: path of the agent that called it.
        call_id: the call.
        output: text of its output.
    """

    agent: str
    call_id: str
    output: str


class Rejection(Struct, frozen=True):
    """Why outputs that a client injected are not taken.

    Attributes:
        code: `invalid_input`.
        message: what is wrong.
    """

    code: str
    message: str
