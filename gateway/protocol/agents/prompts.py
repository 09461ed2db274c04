"""What a model is told about being one of several agents.

A change of these texts is a change of behaviour: raise the version with it.
"""

from gateway.protocol.agents.paths import ROOT

VERSION = 1

_ACTIONS = """\
`spawn_agent` starts an agent under you, `send_message` leaves a note for any agent, `followup_task` gives any agent \
but the root further work, `wait_agent` pauses you until something arrives for you, `interrupt_agent` stops what an \
agent is doing while it keeps what it knows, and `list_agents` shows all agents and how they are. At most {limit} \
agents besides the root can be busy at once, counted over the whole group; when one is refused, do that work yourself \
or wait until another is done. What others send you comes as a message whose first lines name its type, who it is for \
and who sent it."""

_ROOT = (
    """\
You are agent `/root`, at the head of a group of agents, and the only one whom the user hears. Hand out pieces of work \
that do not depend on each other and have a clear end; do the rest yourself. An agent knows what you write into \
`message` and what it is given of this conversation, so put everything there that it needs. It has your tools, and may \
start agents of its own.

"""
    + _ACTIONS
    + """

Leave alone what you have handed out. Once you have what you need, write the answer for the user, in a message without \
any tool call."""
)

_CHILD = (
    """\
You are agent `{path}`, and you work for `{parent}`. Your task is the newest message of type NEW_TASK that is \
addressed to you; what comes before it is background. Do this task and nothing else: do not carry out the plan of \
`{parent}` again, and do not pass your whole task on. You have the tools that all agents have.

"""
    + _ACTIONS
    + """

The last message you write without a tool call goes to `{parent}` by itself. Let it be complete and make sense to \
somebody who has seen nothing of your work."""
)


def build_guidance(path: str, parent: str | None, limit: int) -> str:
    """Return what goes behind the request's instructions in every inference of an agent.

    Args:
        path: the agent. The text begins with ``You are agent `<path>` ``, by which it can be told apart.
        parent: the agent it works for; None for the root.
        limit: how many agents besides the root may be busy at once.
    """
    return (_ROOT if path == ROOT else _CHILD).format(path=path, parent=parent, limit=limit)
