"""How servers are asked how many tokens a request has for them."""

from collections.abc import Mapping
from typing import Any, Final

from gateway.ports import TokenQuestion

# Members of a request that bear on how its prompt is put together.
_OF_CHATS: Final = ("model", "messages", "tools", "chat_template_kwargs")
_OF_RESPONSES: Final = (
    *("model", "input", "instructions", "tools", "tool_choice", "reasoning", "text", "chat_template_kwargs"),
)


def ask_vllm(chat: Mapping[str, Any]) -> TokenQuestion:
    """Return the question for vLLM, which tokenizes chats.

    Args:
        chat: the request as one of Chat Completions.
    """
    return TokenQuestion(target="/tokenize", body=_pick(chat, _OF_CHATS))


def ask_llamacpp(body: Mapping[str, Any]) -> TokenQuestion:
    """Return the question for llama.cpp, which takes the request as it is."""
    return TokenQuestion(target="/v1/responses/input_tokens", body=_pick(body, _OF_RESPONSES))


def _pick(body: Mapping[str, Any], names: tuple[str, ...]) -> Mapping[str, Any]:
    return {name: body[name] for name in names if name in body}
