"""How much a tree of agents may be and do."""

from msgspec import Struct


class Bounds(Struct, frozen=True, kw_only=True):
    """Bounds of one response's tree; the first is the request's, all others are the configuration's.

    Attributes:
        max_concurrent: how many agents besides the root may be busy at the same time.
        max_agents_total: how many agents besides the root there may ever be in a tree; 0 for any number.
        max_depth: how far below the root an agent may be; 0 for any depth.
        max_rounds_per_activation: inferences from the moment an agent gets work until it is done.
        wait_min_ms: shortest time of a `wait_agent`; shorter ones are made longer.
        wait_default_ms: time of a `wait_agent` that names none.
        wait_max_ms: longest time of a `wait_agent`; longer ones are made shorter.
        max_mail_bytes: UTF-8 bytes of one message between agents.
        max_mailbox_entries: messages that may wait for one agent.
        max_tree_bytes: bytes of all histories and of all mail that waits.
        finish_unanswered_root: a root that has not answered and has mail gets one more round.
        tell_tasks: `list_agents` also shows what each agent was last asked to do.
    """

    max_concurrent: int = 3
    max_agents_total: int = 64
    max_depth: int = 8
    max_rounds_per_activation: int = 64
    wait_min_ms: int = 10_000
    wait_default_ms: int = 30_000
    wait_max_ms: int = 3_600_000
    max_mail_bytes: int = 262_144
    max_mailbox_entries: int = 256
    max_tree_bytes: int = 33_554_432
    finish_unanswered_root: bool = True
    tell_tasks: bool = False
