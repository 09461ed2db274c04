"""Runs of several agents: who is asked, what is mail and what is work, and scripts for each agent from a file."""

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from gateway.protocol.agents.mail import MailKind

# By path of an agent what it is told to do: the first piece of work, the next, ...; the last one is done again.
AgentScripts = Mapping[str, Sequence[str]]

_MARKER = re.compile(r"You are agent `([^`]+)`")
_HEADER = re.compile(r"Message Type: (\w+)\nTask name: (.*)\nSender: .*\nPayload:\n", re.ASCII)


class Letter(Struct, frozen=True):
    """What one agent wrote to another, as a model is shown it.

    Attributes:
        is_task: whether it is work to be done, and not a note or a result.
        recipient: path of the agent it is for.
        text: what it says.
    """

    is_task: bool
    recipient: str
    text: str


def find_agent(instructions: str) -> str | None:
    """Return the path of the agent that these instructions are for, or None when they are for no agent."""
    marker = _MARKER.search(instructions)
    return None if marker is None else marker[1]


def read_letter(message: str) -> Letter | None:
    """Return what another agent wrote, or None for a message of the user's."""
    header = _HEADER.match(message)
    if header is None:
        return None
    return Letter(header[1] == MailKind.NEW_TASK, header[2], message[header.end() :])


def load_agents(path: Path) -> AgentScripts:
    """Return the scripts in a TOML file.

    Raises:
        OSError: the file cannot be read.
        ValueError: it is not TOML, or something else than texts by paths of agents; the message names the place.
    """
    loaded = msgspec.convert(tomllib.loads(path.read_text()), dict[str, str | list[str]])
    scripts = {agent: [script] if isinstance(script, str) else script for agent, script in loaded.items()}
    if empty := [agent for agent, script in scripts.items() if not script]:
        raise ValueError(f"there is nothing for {empty[0]} to do")
    return scripts
