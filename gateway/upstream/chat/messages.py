"""From input items to the messages of a chat.

A chat has one message for what Responses have several items for: what an assistant thought, said and called in one go.
"""

from typing import Any, Final

from gateway.protocol.errors import InvalidRequest
from gateway.upstream.replay import Item, join_text, read_reasoning

_TEXTS: Final = frozenset({"input_text", "output_text", "text", "summary_text"})
_FILE_KEYS: Final = ("file_data", "file_id", "filename")
# Parts that have the same form in both.
_SAME: Final = frozenset({"input_audio", "image_url", "file", "video_url", "audio_url"})
_SHOWN_CHARS: Final = 64


def write_messages(instructions: Any, source: Any) -> list[Item]:
    """Return the messages of a conversation.

    Args:
        instructions: text of the system message, or None.
        source: one text of the user, or input items.

    Raises:
        InvalidRequest: an item or part that chats have no form for.
    """
    chat = _Chat()
    if instructions:
        chat.add("system", instructions)
    if isinstance(source, str):
        chat.add("user", source)
    for item in source if isinstance(source, list) else ():
        chat.take(item)
    return chat.messages


class _Chat:
    """Messages while they are written."""

    def __init__(self) -> None:
        self.messages: list[Item] = []
        # The assistant's message that what comes next may still belong to.
        self._open: Item | None = None

    def take(self, item: Item) -> None:
        kind = item.get("type") or "message"
        match kind:
            case "message":
                role = item.get("role")
                if role == "assistant":
                    self._say(item.get("content"))
                else:
                    # Templates of open models know no developers.
                    self.add("system" if role == "developer" else str(role), _write_content(item.get("content")))
            case "reasoning":
                self._think(read_reasoning(item))
            case "function_call":
                self._call(item)
            case "function_call_output":
                self._open = None
                told = {"role": "tool", "tool_call_id": item.get("call_id"), "content": _write_output(item)}
                self.messages.append(told)
            case _:
                raise _refuse("item", kind)

    def add(self, role: str, content: str | list[Item]) -> None:
        """Add a message; many templates take one of the system's only, and only in front."""
        self._open = None
        first = self.messages[0] if len(self.messages) == 1 else None
        if (
            role == "system"
            and first is not None
            and first["role"] == "system"
            and _are_texts(first["content"], content)
        ):
            first["content"] = f"{first['content']}\n\n{content}"
            return
        self.messages.append({"role": role, "content": content})

    def _say(self, content: Any) -> None:
        text = content if isinstance(content, str) else join_text(content)
        message = self._open
        if message is None or (message["content"] and "tool_calls" not in message):
            message = self._begin()
        message["content"] = (message["content"] or "") + text

    def _think(self, text: str) -> None:
        if not text:
            return
        message = self._open
        if message is None or (message["content"] and "tool_calls" not in message):
            message = self._begin()
        known = message.get("reasoning_content")
        message["reasoning_content"] = f"{known}\n{text}" if known else text

    def _call(self, item: Item) -> None:
        message = self._open if self._open is not None else self._begin()
        message["content"] = message["content"] or None
        function = {"name": item.get("name"), "arguments": item.get("arguments") or "{}"}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        message.setdefault("tool_calls", []).append(call)

    def _begin(self) -> Item:
        self._open = {"role": "assistant", "content": ""}
        self.messages.append(self._open)
        return self._open


def _are_texts(*values: Any) -> bool:
    return all(isinstance(value, str) for value in values)


def _write_output(item: Item) -> str | list[Item]:
    content = _write_content(item.get("output"))
    if isinstance(content, list) and all(part.get("type") == "text" for part in content):
        return join_text(content)
    return content


def _write_content(content: Any) -> str | list[Item]:
    """Return content as a text where it is one, else part by part."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    parts = [_write_part(part) for part in content if isinstance(part, dict)]
    if not parts:
        return ""
    return str(parts[0]["text"]) if len(parts) == 1 and parts[0]["type"] == "text" else parts


def _write_part(part: Item) -> Item:
    kind = part.get("type")
    if kind in _TEXTS:
        return {"type": "text", "text": part.get("text") or ""}
    if kind == "input_image" and isinstance(part.get("image_url"), str):
        detail = {"detail": part["detail"]} if part.get("detail") is not None else {}
        return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
    if kind == "input_file" and part.get("file_url") is None:
        return {"type": "file", "file": {key: part[key] for key in _FILE_KEYS if part.get(key) is not None}}
    if kind in _SAME:
        return part
    raise _refuse("part", kind)


def _refuse(what: str, kind: Any) -> InvalidRequest:
    return InvalidRequest(
        f"Input {what}s of type '{str(kind)[:_SHOWN_CHARS]}' have no form in Chat Completions, which is all that the "
        f"inference server speaks; send the request without the {what}.",
        code="invalid_value",
        param="input",
    )
