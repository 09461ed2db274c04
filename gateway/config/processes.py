"""What several worker processes count each for itself."""

from collections.abc import Iterator

from gateway.config.schema import GatewayConfig
from gateway.config.tree import Leaf, format_path, gateway_tree, walk


def list_per_process(config: GatewayConfig) -> Iterator[str]:
    """Yield the dotted path of every bound that holds for each process, and not for all of them together.

    One that is 0 bounds nothing.
    """
    for path, node, value in walk(gateway_tree(), config):
        if isinstance(node, Leaf) and node.extra.get("per_process") and value:
            yield format_path(path)


def describe_sharing(config: GatewayConfig) -> str | None:
    """Return a line that says what several workers multiply; None when one process does everything."""
    workers = config.server.workers
    if workers == 1:
        return None
    bounds = ", ".join(list_per_process(config))
    return f"{workers} workers count each for itself, and together allow {workers} times {bounds}"
