"""Paths of agents: `/root`, `/root/alpha`, `/root/alpha/tester`."""

import re

ROOT = "/root"

_TASK_NAME = re.compile(r"[a-z0-9_]{1,64}\Z")


def is_task_name(name: str) -> bool:
    """Tell whether an agent may be called that: 1 to 64 of `a-z`, `0-9` and `_`."""
    return _TASK_NAME.match(name) is not None


def join(parent: str, name: str) -> str:
    """Return the path of an agent's child."""
    return f"{parent}/{name}"


def resolve(caller: str, target: str) -> str:
    """Return the path an agent means: one that begins with `/` as it is, any other from itself downwards."""
    return target if target.startswith("/") else join(caller, target)


def depth_of(path: str) -> int:
    """Return how far below the root an agent is; the root's own depth is 0."""
    return path.count("/") - 1


def is_below(path: str, top: str) -> bool:
    """Tell whether a path is another or one below it."""
    return path == top or path.startswith(f"{top}/")
