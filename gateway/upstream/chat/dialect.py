"""What a server accepts that speaks Chat Completions."""

from typing import Any, Final

from gateway.ports import Dialect, TokenQuestion
from gateway.protocol.errors import UpstreamRefused
from gateway.upstream.chat.request import write_request
from gateway.upstream.token_questions import ask_vllm

# The older name is known everywhere but to a few hosted models; this server calls it deprecated.
_MAX_TOKENS: Final = {"vllm": "max_completion_tokens"}
# What a refusal may name, as callers know it.
_PARAMETERS: Final = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "response_format": "text.format",
    "reasoning_effort": "reasoning.effort",
}


class ChatDialect:
    """A kind of server, spoken to in Chat Completions.

    Args:
        kind: what that kind accepts in the form of Responses.
    """

    def __init__(self, kind: Dialect) -> None:
        self._kind = kind
        self._max_tokens = _MAX_TOKENS.get(kind.name, "max_tokens")

    @property
    def name(self) -> str:
        """The name of the kind of server."""
        return self._kind.name

    def adapt(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body of a chat request that asks for the same.

        Raises:
            InvalidRequest: an input item or part that chats have no form for.
        """
        return write_request(self._kind.adapt(body), max_tokens=self._max_tokens)

    def ask_tokens(self, body: dict[str, Any]) -> TokenQuestion | None:
        """Return a question for the tokenizer of vLLM; None for other servers."""
        return ask_vllm(body) if self.name == "vllm" else None


def name_parameter(refused: UpstreamRefused) -> UpstreamRefused:
    """Return a refusal of a chat request with the parameter at fault called as the caller called it."""
    if refused.param is not None:
        refused.param = _PARAMETERS.get(refused.param, refused.param)
    return refused
