"""What the simulator reads in a request, and what vLLM would refuse in it."""

from types import MappingProxyType
from typing import Any

import msgspec
from msgspec import Struct

from gateway.protocol.agents.paths import ROOT
from gateway.upstream.replay import join_text
from gateway.upstream.simulated.agents import AgentScripts, find_agent, read_letter
from gateway.upstream.simulated.plan import split_tokens
from gateway.upstream.vllm import accepts_include, accepts_service_tier

MAX_MODEL_LEN = 131_072


class Refusal(Exception):
    """An answer in vLLM's error envelope, whose code is the status as an integer."""

    def __init__(self, status: int, message: str, *, param: str | None = None, type: str = "BadRequestError") -> None:
        super().__init__(message)
        self.status = status
        self.error = {"message": message, "type": type, "param": param, "code": status}


class Asked(Struct, frozen=True):
    """A request as a model sees it.

    Attributes:
        body: the request body.
        messages: text of the user messages and of the work other agents gave, oldest first.
        outputs: tool outputs since the last of them.
        tokens: words in the input.
        letters: what other agents wrote besides, since then.
        script: what the agent is told to do, in place of the last message.
    """

    body: dict[str, Any]
    messages: list[str]
    outputs: list[str]
    tokens: int
    letters: list[str] = []
    script: str | None = None

    @property
    def model(self) -> str:
        """The model asked for."""
        return str(self.body.get("model", ""))

    @property
    def stream(self) -> bool:
        """Whether an event stream is wanted."""
        return bool(self.body.get("stream"))

    @property
    def functions(self) -> list[dict[str, Any]]:
        """The function tools offered and not forbidden; only the chosen one when one is named."""
        choice = self.body.get("tool_choice")
        tools = [
            tool for tool in self.body.get("tools") or [] if isinstance(tool, dict) and tool.get("type") == "function"
        ]
        if choice == "none":
            return []
        if isinstance(choice, dict):
            return [tool for tool in tools if tool.get("name") == choice.get("name")]
        return tools

    @property
    def must_call(self) -> bool:
        """Whether `tool_choice` demands a call."""
        choice = self.body.get("tool_choice")
        return choice == "required" or isinstance(choice, dict)


def decode_body(raw: bytes) -> dict[str, Any]:
    """Return the request body.

    Raises:
        Refusal: it is not a JSON object.
    """
    try:
        body = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, "1 validation error: JSON decode error", param="body", type="Bad Request") from error
    if not isinstance(body, dict):
        raise Refusal(400, "1 validation error: not an object", param="body", type="Bad Request")
    return body


def read_request(body: dict[str, Any], agents: AgentScripts = MappingProxyType({})) -> Asked:
    """Return the request as the model sees it.

    Args:
        body: the request.
        agents: what agents are told to do.

    Raises:
        Refusal: it lacks its input or holds something vLLM refuses.
    """
    source = body.get("input")
    if isinstance(source, str):
        source = [{"role": "user", "content": source}]
    if not isinstance(source, list) or not all(isinstance(item, dict) for item in source):
        raise Refusal(400, "1 validation error: input", param="body.input", type="Bad Request")
    if not source:
        raise Refusal(400, "Cannot apply chat template to an empty conversation. Provide at least one message.")
    asked = _read_items(body, source, agents)
    _check_options(body)
    _check_items(source)
    if asked.tokens > MAX_MODEL_LEN:
        raise Refusal(
            400,
            f"This model's maximum context length is {MAX_MODEL_LEN} tokens. However, your prompt contains "
            f"{asked.tokens} input tokens. Please reduce the length of the input prompt.",
            param="input_tokens",
        )
    return asked


def count_messages(body: dict[str, Any]) -> int:
    """Return how many tokens the messages of a chat have: as many as the input they were made of.

    Raises:
        Refusal: there are none.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise Refusal(400, "1 validation error: messages", param="body.messages", type="Bad Request")
    texts = [_read_text(message) for message in messages]
    texts += [call["function"]["arguments"] for message in messages for call in message.get("tool_calls", ())]
    return sum(len(split_tokens(text)) for text in texts)


def _read_items(body: dict[str, Any], items: list[dict[str, Any]], agents: AgentScripts) -> Asked:
    messages: list[str] = []
    outputs: list[str] = []
    letters: list[str] = []
    instructions = str(body.get("instructions") or "")
    tokens = len(split_tokens(instructions))
    instructions += "".join(_read_text(item) for item in items if item.get("role") in ("system", "developer"))
    agent, tasks = find_agent(instructions), 0
    for item in items:
        text = _read_text(item)
        tokens += len(split_tokens(text))
        if item.get("type") == "function_call_output":
            outputs.append(text)
        elif item.get("role") == "user":
            letter = read_letter(text)
            if letter is not None and not letter.is_task:
                letters.append(letter.text)
                continue
            # What a fork copied was for another agent.
            tasks += (letter.recipient if letter is not None else ROOT) == agent
            messages.append(text if letter is None else letter.text)
            outputs, letters = [], []
    script = None
    if agent is not None and agent in agents and body.get("tools"):
        scripts = agents[agent]
        script = scripts[min(max(tasks, 1), len(scripts)) - 1]
    return Asked(body, messages, outputs, tokens, letters, script)


def _read_text(item: dict[str, Any]) -> str:
    value = item.get("content") or item.get("output") or item.get("arguments") or ""
    return value if isinstance(value, str) else join_text(value)


def _check_options(body: dict[str, Any]) -> None:
    if body.get("prompt") is not None:
        raise Refusal(400, "prompt template is not supported", param="prompt")
    if body.get("previous_response_id") is not None:
        message = f"Response with id '{body['previous_response_id']}' not found."
        raise Refusal(404, message, param="response_id", type="invalid_request_error")
    if body.get("background") and not body.get("store"):
        raise Refusal(400, "background can only be used when `store` is true", param="background")
    if not all(accepts_include(value) for value in body.get("include") or []):
        raise Refusal(400, "1 validation error: include", param="body.include", type="Bad Request")
    if not accepts_service_tier(body.get("service_tier") or "auto"):
        raise Refusal(400, "1 validation error: service_tier", param="body.service_tier", type="Bad Request")
    limit = body.get("max_output_tokens")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise Refusal(400, f"max_tokens must be at least 1, got {limit}.", param="max_tokens")
    names = [tool.get("name") for tool in body.get("tools") or [] if isinstance(tool, dict)]
    choice = body.get("tool_choice")
    if choice == "required" and not names:
        raise Refusal(400, "Tool choice 'required' must be specified with 'tools' parameter.", param="tool_choice")
    if isinstance(choice, dict) and choice.get("name") not in names:
        raise Refusal(400, "Tool choice 'function' not found in 'tools' parameter.", param="tool_choice")


def _check_items(items: list[dict[str, Any]]) -> None:
    for item in items:
        if item.get("type") == "reasoning" and item.get("encrypted_content"):
            raise Refusal(400, "Encrypted content is not supported.")
