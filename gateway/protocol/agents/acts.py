"""What the six actions do to a tree."""

from collections.abc import Callable

from msgspec import Struct

from gateway.protocol.agents.actions import FOLLOW_UP, INTERRUPT, LIST, SEND, SPAWN, WAIT, Json, read_fork_turns
from gateway.protocol.agents.agent import Agent, Phase, Wait, show_status
from gateway.protocol.agents.fork import fork_history
from gateway.protocol.agents.mail import Mail, MailKind
from gateway.protocol.agents.outcomes import Outcome
from gateway.protocol.agents.paths import ROOT, depth_of, is_below, is_task_name, join, resolve
from gateway.protocol.agents.refusals import Refusal, write_output
from gateway.protocol.agents.roster import Roster, measure
from gateway.protocol.ledger import text_bytes

WAIT_COMPLETED = write_output({"message": "Wait completed.", "timed_out": False})


class Act(Struct, frozen=True):
    """One call of an action.

    Attributes:
        caller: the agent that calls.
        call_id: the call.
        given: its arguments, of the right types.
        now: the time in seconds.
    """

    caller: Agent
    call_id: str
    given: Json
    now: float


def perform(roster: Roster, action: str, act: Act) -> Outcome:
    """Carry out an action.

    Raises:
        Refusal: it cannot be; nothing has changed.
    """
    return _ACTS[action](roster, act)


def _spawn(roster: Roster, act: Act) -> Outcome:
    given, bounds, parent = act.given, roster.bounds, act.caller
    if not is_task_name(given["task_name"]):
        raise Refusal("bad_task_name")
    path = join(parent.path, given["task_name"])
    if path in roster.agents:
        raise Refusal("duplicate_agent", path=path)
    if bounds.max_depth and depth_of(path) > bounds.max_depth:
        raise Refusal("too_deep", limit=bounds.max_depth)
    if bounds.max_agents_total and len(roster.agents) > bounds.max_agents_total:
        raise Refusal("too_many_agents", limit=bounds.max_agents_total)
    task = _write_mail(roster, act, MailKind.NEW_TASK, path)
    turns = read_fork_turns(given.get("fork_turns", "all"))
    # Models repeat what is refused: that is to cost little, however much there is to fork.
    _check_capacity(roster)
    history = fork_history(parent.history[: parent.kept.round_start], turns, unanswered=parent.late)
    if roster.size + parent.weigh(history) + measure(task.to_item()) > bounds.max_tree_bytes:
        raise Refusal("tree_full")
    agent = roster.add(path, parent.path)
    roster.append(agent, history)
    roster.hand_over(task)
    roster.start(agent)
    return Outcome(output=write_output({"task_name": path}), delivered=(task,), spawned=path)


def _send(roster: Roster, act: Act) -> Outcome:
    target = _find_target(roster, act)
    if target is act.caller:
        raise Refusal("self_message")
    _post(roster, _write_mail(roster, act, MailKind.MESSAGE, target.path))
    return Outcome(output="")


def _follow_up(roster: Roster, act: Act) -> Outcome:
    target = _find_target(roster, act)
    if target.path == ROOT:
        raise Refusal("root_task")
    if target is act.caller:
        raise Refusal("self_task")
    task = _write_mail(roster, act, MailKind.NEW_TASK, target.path)
    if not target.is_idle:
        _post(roster, task)
        return Outcome(output="")
    _check_capacity(roster)
    delivered = roster.deliver(target)
    roster.hand_over(task)
    roster.start(target)
    return Outcome(output="", delivered=(*delivered, task))


def _wait(roster: Roster, act: Act) -> Outcome:
    agent, bounds = act.caller, roster.bounds
    if agent.kept.has_waited:
        raise Refusal("second_wait")
    agent.kept.has_waited = True
    if agent.has_mail:
        return Outcome(output=WAIT_COMPLETED)
    asked = act.given.get("timeout_ms", bounds.wait_default_ms)
    time_ms = min(max(asked, bounds.wait_min_ms), bounds.wait_max_ms)
    agent.wait = Wait(act.call_id, act.now + time_ms / 1000)
    return Outcome(output=None)


def _interrupt(roster: Roster, act: Act) -> Outcome:
    target = _find_target(roster, act)
    if target is act.caller:
        raise Refusal("self_interrupt")
    if target.path == ROOT:
        raise Refusal("root_interrupt")
    output = write_output({"previous_status": show_status(target.status)})
    if target.phase in (Phase.INFERRING, Phase.ACTING, Phase.COMPACTING):
        is_new, target.interrupting = not target.interrupting, True
        return Outcome(output=output, cut=target.path if is_new and target.phase is Phase.INFERRING else None)
    delivered: list[Mail] = []
    if not target.is_idle:
        # The task it was about to begin with is what is stopped; it is not to begin with it once more.
        delivered = roster.deliver(target, with_task=True) if target.kept.starts_task else []
        roster.stop(target)
    return Outcome(output=output, delivered=tuple(delivered))


def _list(roster: Roster, act: Act) -> Outcome:
    top = resolve(act.caller.path, act.given.get("path_prefix") or ROOT).rstrip("/")
    shown = [agent for agent in roster.agents.values() if is_below(agent.path, top)]
    return Outcome(output=write_output({"agents": [_show_agent(agent, roster.bounds.tell_tasks) for agent in shown]}))


_ACTS: dict[str, Callable[[Roster, Act], Outcome]] = {
    SPAWN: _spawn,
    SEND: _send,
    FOLLOW_UP: _follow_up,
    WAIT: _wait,
    INTERRUPT: _interrupt,
    LIST: _list,
}


def _show_agent(agent: Agent, tells_task: bool) -> Json:
    shown: Json = {"agent_name": agent.path, "agent_status": show_status(agent.status)}
    return {**shown, "last_task_message": agent.last_task} if tells_task else shown


def _find_target(roster: Roster, act: Act) -> Agent:
    path = resolve(act.caller.path, act.given["target"])
    if path not in roster.agents:
        raise Refusal("unknown_agent", path=path)
    return roster.agents[path]


def _check_capacity(roster: Roster) -> None:
    if roster.active >= roster.bounds.max_concurrent:
        raise Refusal("no_capacity", limit=roster.bounds.max_concurrent)


def _write_mail(roster: Roster, act: Act, kind: MailKind, recipient: str) -> Mail:
    payload = act.given["message"]
    if text_bytes(payload) > roster.bounds.max_mail_bytes:
        raise Refusal("message_too_big", limit=roster.bounds.max_mail_bytes)
    return Mail(kind=kind, author=act.caller.path, recipient=recipient, payload=payload)


def _post(roster: Roster, mail: Mail) -> None:
    if len(roster.agents[mail.recipient].mailbox) >= roster.bounds.max_mailbox_entries:
        raise Refusal("mailbox_full", path=mail.recipient)
    roster.post(mail)
