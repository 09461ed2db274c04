"""Keys of multi-agent responses that contradict each other."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from gateway.config.findings import KeyPath
from gateway.config.schema import MultiAgentConfig, StorageConfig
from gateway.config.units import format_size

_WAITS: Final = ("wait_min_ms", "wait_default_ms", "wait_max_ms")

Finding = tuple[str, *tuple[KeyPath, ...]]


def review_agents(config: MultiAgentConfig) -> Iterator[Finding]:
    """Yield what forbids the configuration, with the keys involved, first the one that has it."""
    for lower, upper in pairwise(_WAITS):
        low, high = getattr(config, lower), getattr(config, upper)
        if low > high:
            yield f"{lower} ({low}) is above {upper} ({high}); lower it, or raise the other", _path(lower), _path(upper)
    ceiling, default = config.max_concurrent_subagents_ceiling, config.default_max_concurrent_subagents
    if ceiling and default > ceiling:
        yield (
            f"default_max_concurrent_subagents is above max_concurrent_subagents_ceiling ({ceiling}); lower it",
            _path("default_max_concurrent_subagents"),
            _path("max_concurrent_subagents_ceiling"),
        )


def doubt_agents(config: MultiAgentConfig, storage: StorageConfig) -> Iterator[Finding]:
    """Yield what is allowed but hardly meant, with the keys involved."""
    rounds, all_rounds = config.max_rounds_per_turn, config.max_rounds_per_response
    if rounds > all_rounds:
        yield (
            f"max_rounds_per_turn ({rounds}) is above max_rounds_per_response ({all_rounds}), and never reached",
            _path("max_rounds_per_turn"),
            _path("max_rounds_per_response"),
        )
    if config.max_mail_bytes > config.max_tree_bytes:
        yield (
            "max_mail_bytes is above max_tree_bytes: the longest messages end the response",
            _path("max_mail_bytes"),
            _path("max_tree_bytes"),
        )
    if config.max_tree_bytes > storage.history_max_bytes:
        bound = f"storage.history_max_bytes ({format_size(storage.history_max_bytes)})"
        yield (
            f"multi_agent.max_tree_bytes is above {bound}: the largest trees are stored but can never be continued",
            _path("max_tree_bytes"),
            ("storage", "history_max_bytes"),
        )


def _path(name: str) -> KeyPath:
    return ("multi_agent", name)
