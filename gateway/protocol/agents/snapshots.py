"""Trees as they are stored: of each agent that a response changed, what it changed.

The items of histories are stored once: a response's row holds those that came in it, unless a summary has replaced
what came before. Everything else about an agent is small and always whole. An agent that did not change has no row.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct, ValidationError, convert, structs

from gateway.protocol import codec
from gateway.protocol.agents.agent import Agent, Call, LateCall, Phase, Status
from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.mail import Item, Mail
from gateway.protocol.agents.paths import ROOT
from gateway.protocol.agents.roster import Roster
from gateway.protocol.agents.stored import StoredAgent

VERSION = 1

# What an agent may be found doing. Whoever was at work, or waited, would be so for ever: nothing goes on for them.
_STORED = frozenset({Phase.IDLE, Phase.BLOCKED, Phase.PARKED, Phase.RUNNABLE})


class State(Struct, frozen=True, kw_only=True):
    """What is stored of an agent besides its history; the members are the agent's.

    Attributes:
        limit: of the root alone: how many agents besides it the response let be busy.
    """

    number: int
    status: Status
    phase: Phase
    mailbox: list[Mail]
    calls: dict[str, Call]
    late: dict[str, LateCall]
    last_task: str | None
    rounds: int
    empty_rounds: int
    failures: int
    limit: int | None = None


class Row(Struct, frozen=True, kw_only=True):
    """What one response stores of an agent.

    Attributes:
        version: of this form.
        base: `whole`, or `delta` for items that go behind the stored ones.
        sizes: bytes of the items, one for each.
        items: items of the history.
        state: everything else.
    """

    version: int
    base: str
    sizes: list[int]
    items: list[Item]
    state: dict[str, Any]


def write_agents(agents: Mapping[str, Agent], limit: int) -> list[StoredAgent]:
    """Return a row for each agent that is not as it is stored.

    Args:
        agents: all of a tree.
        limit: how many besides the root may be busy; it is stored with the root.
    """
    rows = (_write_agent(agent, limit) for agent in agents.values())
    return [row for row in rows if row is not None]


def read_agents(rows: Sequence[StoredAgent], bounds: Bounds, *, inherits: bool = False) -> Roster:
    """Return the agents that a chain of responses left.

    Args:
        rows: those of each response, oldest response first.
        bounds: bounds of the response that goes on with them.
        inherits: as many may be busy as the response before allowed, whatever the bounds say.

    Raises:
        ValueError: they are no rows of a tree, or of a version that is not known here.
    """
    found: dict[str, Agent] = {}
    limit = bounds.max_concurrent
    for row in rows:
        limit = _read_row(found, row).limit or limit
    _check_kin(found)
    roster = Roster(structs.replace(bounds, max_concurrent=limit) if inherits else bounds)
    for agent in sorted(found.values(), key=lambda agent: agent.number):
        agent.kept.stored_items = len(agent.history)
        agent.kept.stored_state = _write_state(agent, limit)
        roster.adopt(agent)
    return roster


def _write_agent(agent: Agent, limit: int) -> StoredAgent | None:
    kept = agent.kept
    start = kept.stored_items or 0
    items, state = agent.history[start:], _write_state(agent, limit)
    if kept.stored_items is not None and not items and state == kept.stored_state:
        return None
    base = "whole" if kept.stored_items is None else "delta"
    row = {
        "version": VERSION,
        "base": base,
        "sizes": kept.sizes[start:],
        "items": items,
        "state": _build_state(agent, limit),
    }
    status = agent.status.__struct_config__.tag
    return StoredAgent(path=agent.path, parent_path=agent.parent, status=str(status), state=codec.encode(row))


def _build_state(agent: Agent, limit: int) -> State:
    return State(
        number=agent.number,
        status=agent.status,
        phase=agent.phase,
        mailbox=agent.mailbox,
        calls=agent.calls,
        late=agent.late,
        last_task=agent.last_task,
        rounds=agent.rounds,
        empty_rounds=agent.empty_rounds,
        failures=agent.failures,
        limit=limit if agent.path == ROOT else None,
    )


def _write_state(agent: Agent, limit: int) -> bytes:
    return codec.encode(_build_state(agent, limit))


def _check_kin(agents: Mapping[str, Agent]) -> None:
    """Look whether everybody is there who will have mail.

    Raises:
        ValueError: somebody is not.
    """
    for path, agent in agents.items():
        is_known = agent.parent is None if path == ROOT else agent.parent in agents
        if not is_known or any(mail.recipient != path for mail in agent.mailbox):
            raise ValueError("agents of a tree that are not of the same one")
    if ROOT not in agents:
        raise ValueError("a tree of agents without a root")


def _read_row(found: dict[str, Agent], row: StoredAgent) -> State:
    try:
        content = convert(codec.decode(row.state, max_depth=None), Row)
        state = convert(content.state, State)
    except (ValidationError, RecursionError) as error:
        raise ValueError(f"no agent of a tree: {error}") from error
    if state.phase not in _STORED or len(content.sizes) != len(content.items):
        raise ValueError("an agent that was stored in the middle of something")
    if content.version != VERSION or (content.base == "delta" and row.path not in found):
        raise ValueError("agents of a tree in a form that is not known here")
    agent = Agent(number=state.number, path=row.path, parent=row.parent_path)
    if content.base == "delta":
        agent.history, agent.kept.sizes = found[row.path].history, found[row.path].kept.sizes
    agent.history += content.items
    agent.kept.sizes += content.sizes
    agent.status, agent.phase, agent.mailbox = state.status, state.phase, state.mailbox
    agent.calls, agent.late, agent.last_task = state.calls, state.late, state.last_task
    agent.rounds, agent.empty_rounds, agent.failures = state.rounds, state.empty_rounds, state.failures
    found[row.path] = agent
    return state
