"""The kinds of inference server the gateway knows."""

from typing import Any

from gateway.ports import Dialect, TokenQuestion
from gateway.upstream.chat import ChatDialect
from gateway.upstream.llamacpp import LlamaCppDialect
from gateway.upstream.replay import close_item, drop_empty_tools, mend_items
from gateway.upstream.vllm import VllmDialect

AUTO = "auto"


class GenericDialect:
    """A server about which nothing is known: the least is changed."""

    name = "generic"

    def adapt(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body with replayed items closed and without an empty tool list."""
        return drop_empty_tools(mend_items(body, close_item))

    def ask_tokens(self, body: dict[str, Any]) -> TokenQuestion | None:  # noqa: ARG002
        """Return None: no one way is known."""
        return None


def find_dialect(name: str, *, chat: bool = False) -> Dialect:
    """Return the dialect of that name; `auto` is generic until the server is recognised.

    Args:
        name: its name.
        chat: the server is spoken to in Chat Completions.

    Raises:
        ValueError: no such dialect.
    """
    known: tuple[Dialect, ...] = (VllmDialect(), LlamaCppDialect(), GenericDialect())
    for dialect in known:
        if dialect.name == name or (name == AUTO and dialect.name == "generic"):
            return ChatDialect(dialect) if chat else dialect
    raise ValueError(f"unknown dialect {name!r}; use auto, {', '.join(dialect.name for dialect in known)}")
