"""What llama.cpp accepts."""

from typing import Any

from gateway.ports import TokenQuestion
from gateway.upstream.replay import Item, close_item, drop_empty_tools, mend_items, read_reasoning
from gateway.upstream.token_questions import ask_llamacpp


class LlamaCppDialect:
    """llama.cpp's server: it refuses reasoning without text and any `previous_response_id`."""

    name = "llamacpp"

    def adapt(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body with reasoning as plain text, replayed items closed, and without what is refused."""
        adapted = drop_empty_tools(mend_items(dict(body), _mend))
        adapted.pop("previous_response_id", None)
        return adapted

    def ask_tokens(self, body: dict[str, Any]) -> TokenQuestion | None:
        """Return the question as the API has it."""
        return ask_llamacpp(body)


def _mend(item: Item) -> Item | None:
    if item.get("type") != "reasoning":
        return close_item(item)
    text = read_reasoning(item)
    if not text:
        return None
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}
