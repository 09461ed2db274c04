"""When a `wait_agent` is over.

It is over when there is mail or its time is up. It is dead, and over at once, when nobody is left who could send
anything: since any agent may write to any other, that is when no agent at all is at work. Agents that wait for each
other are dead together. Those that are blocked on client calls count as at work only where a client can answer while
the response runs; elsewhere whoever waits for them is parked. In a later response the parked go on when mail has come,
or when nobody is left who could send any.
"""

from gateway.protocol.agents.acts import WAIT_COMPLETED
from gateway.protocol.agents.agent import Agent, Phase
from gateway.protocol.agents.outcomes import ResolvedWait
from gateway.protocol.agents.refusals import write_output
from gateway.protocol.agents.roster import Roster

WAIT_TIMED_OUT = write_output({"message": "Wait timed out.", "timed_out": True})
NOBODY_ACTIVE = write_output({"message": "No other agent is active.", "timed_out": False})
CLIENT_NEEDED = write_output({"message": "Agents are waiting for client tool outputs.", "timed_out": False})

_AT_WORK = frozenset({Phase.RUNNABLE, Phase.INFERRING, Phase.ACTING, Phase.COMPACTING})


def resolve_waits(roster: Roster, now: float, *, is_live: bool) -> list[ResolvedWait]:
    """End the waits that are over, and return them, those of interrupted agents first."""
    ended, roster.ended_waits = roster.ended_waits, []
    _unpark(roster)
    for agent in roster.agents.values():
        if agent.wait is not None and agent.has_mail:
            ended.append(_end_wait(roster, agent, WAIT_COMPLETED))
        elif agent.wait is not None and now >= agent.wait.deadline:
            ended.append(_end_wait(roster, agent, WAIT_TIMED_OUT))
    while dead := _find_dead(roster, is_live):
        # All are judged before the first of them goes on.
        stuck = {agent.path for agent in dead if _needs_client(roster, agent)}
        for agent in dead:
            ended.append(_end_wait(roster, agent, CLIENT_NEEDED if agent.path in stuck else NOBODY_ACTIVE))
            if agent.path in stuck and agent.phase is Phase.RUNNABLE:
                agent.move(Phase.PARKED)
    return ended


def _find_dead(roster: Roster, is_live: bool) -> list[Agent]:
    phases = {agent.phase for agent in roster.agents.values()}
    if phases & _AT_WORK or (is_live and Phase.BLOCKED in phases):
        return []
    waiting = [agent for agent in roster.agents.values() if agent.phase is Phase.WAITING]
    # Of agents that wait for each other those with client calls of their own may be answered once they do not wait.
    answerable = [agent for agent in waiting if agent.client_calls]
    return answerable if is_live and answerable else waiting


def _needs_client(roster: Roster, waiter: Agent) -> bool:
    return any(agent.client_calls for agent in roster.agents.values() if agent is not waiter)


def _unpark(roster: Roster) -> None:
    """Let parked agents go on that have mail, and all where none will come and nobody needs the client any more."""
    agents = roster.agents.values()
    is_over = not any(agent.client_calls or agent.phase in _AT_WORK for agent in agents)
    for agent in agents:
        if agent.phase is Phase.PARKED and (is_over or agent.has_mail):
            agent.move(Phase.RUNNABLE)


def _end_wait(roster: Roster, agent: Agent, text: str) -> ResolvedWait:
    assert agent.wait is not None
    ended = ResolvedWait(agent.path, agent.wait.call_id, text)
    agent.wait = None
    roster.record_output(agent, ended.call_id, "wait_agent", text)
    roster.resume(agent)
    return ended
