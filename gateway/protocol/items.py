"""Output items and their parts, as the API words them.

The four kinds a model writes itself are Structs. Every other item type is carried as the dict it came as, with the id
replaced by ours.
"""

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType, field

Status = Literal["in_progress", "completed", "incomplete"]


class AgentRef(Struct, kw_only=True):
    """The agent of a tree that an item or an event belongs to, by its path."""

    agent_name: str


class OutputText(Struct, tag="output_text", tag_field="type", kw_only=True):
    """Text of a message."""

    text: str
    annotations: list[Any] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)


class Refusal(Struct, tag="refusal", tag_field="type", kw_only=True):
    """The model's refusal, in words."""

    refusal: str


class ReasoningText(Struct, tag="reasoning_text", tag_field="type", kw_only=True):
    """Reasoning as the model wrote it."""

    text: str


class SummaryText(Struct, tag="summary_text", tag_field="type", kw_only=True):
    """A summary of reasoning."""

    text: str


class Message(Struct, tag="message", tag_field="type", kw_only=True):
    """A message of the assistant."""

    id: str
    status: Status
    role: str = "assistant"
    content: list[OutputText | Refusal]
    phase: str | UnsetType = UNSET
    agent: AgentRef | UnsetType = UNSET


class Reasoning(Struct, tag="reasoning", tag_field="type", kw_only=True):
    """Reasoning that came before an answer or a call."""

    id: str
    status: Status
    summary: list[SummaryText]
    content: list[ReasoningText] | UnsetType = UNSET
    encrypted_content: str | UnsetType = UNSET
    agent: AgentRef | UnsetType = UNSET


class FunctionCall(Struct, tag="function_call", tag_field="type", kw_only=True):
    """A call of a function tool; `arguments` is JSON text as the model wrote it."""

    id: str
    status: Status
    call_id: str
    name: str
    arguments: str
    namespace: str | UnsetType = UNSET
    agent: AgentRef | UnsetType = UNSET


class CustomToolCall(Struct, tag="custom_tool_call", tag_field="type", kw_only=True):
    """A call of a custom tool; `input` is free text."""

    id: str
    status: Status
    call_id: str
    name: str
    input: str
    namespace: str | UnsetType = UNSET
    agent: AgentRef | UnsetType = UNSET


OutputItem = Message | Reasoning | FunctionCall | CustomToolCall | dict[str, Any]
Part = OutputText | Refusal | ReasoningText | SummaryText

# Item types of the API that may be replayed as input, besides those above.
INPUT_TYPES: frozenset[str] = frozenset(
    {
        "message", "reasoning", "function_call", "function_call_output", "custom_tool_call",
        "custom_tool_call_output", "item_reference", "web_search_call", "file_search_call", "code_interpreter_call",
        "image_generation_call", "computer_call", "computer_call_output", "local_shell_call",
        "local_shell_call_output", "shell_call", "shell_call_output", "apply_patch_call", "apply_patch_call_output",
        "mcp_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "tool_search_call",
        "tool_search_output", "program", "program_output", "additional_tools", "compaction", "compaction_trigger",
        "configuration_update",
    }
)  # fmt: skip

# Items that a tree of agents tells and keeps; no input brings them back.
TREE_TYPES: frozenset[str] = frozenset({"multi_agent_call", "multi_agent_call_output", "agent_message"})

# Calls whose outputs the client owns, with the type of the output that answers them.
CLIENT_CALLS: dict[str, str] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "computer_call": "computer_call_output",
}
CLIENT_OUTPUTS: dict[str, str] = {output: call for call, output in CLIENT_CALLS.items()}
