"""Checks and normalises the `input` of a request, item by item, before anything is sent or stored."""

from typing import Any

from gateway.protocol.compaction import TRIGGER
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.items import INPUT_TYPES, TREE_TYPES

ROLES = frozenset({"user", "assistant", "system", "developer"})
TEXT_PARTS: dict[str, str] = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
}
MEDIA_PARTS = ("input_image", "input_file")
OTHER_PARTS = frozenset({"input_audio", "input_video", "computer_screenshot"})
REQUIRED_TEXT: dict[str, tuple[str, ...]] = {
    "function_call": ("call_id", "name", "arguments"),
    "custom_tool_call": ("call_id", "name", "input"),
    "function_call_output": ("call_id",),
    "custom_tool_call_output": ("call_id",),
    "shell_call": ("call_id",),
    "shell_call_output": ("call_id",),
    "local_shell_call": ("call_id",),
    "local_shell_call_output": ("call_id", "output"),
    "apply_patch_call": ("call_id",),
    "apply_patch_call_output": ("call_id", "status"),
    "computer_call": ("call_id",),
    "computer_call_output": ("call_id",),
    "item_reference": ("id",),
    "mcp_call": ("id", "server_label", "name", "arguments"),
    "mcp_list_tools": ("server_label",),
    "mcp_approval_request": ("id", "server_label", "name", "arguments"),
    "mcp_approval_response": ("approval_request_id",),
    "compaction": ("encrypted_content",),
}
REQUIRED_VALUES: dict[str, tuple[str, type]] = {
    "shell_call": ("action", dict),
    "shell_call_output": ("output", list),
    "local_shell_call": ("action", dict),
    "apply_patch_call": ("operation", dict),
    "computer_call_output": ("output", dict),
    "tool_search_output": ("tools", list),
    "additional_tools": ("tools", list),
}
_NAMESPACED = ("function_call", "custom_tool_call")


def read_input(value: Any, *, max_items: int, remote_images: bool, name: str = "input") -> list[dict[str, Any]]:
    """Return the input as a list of items with a `type` each and without null fields.

    Args:
        value: the request's `input`: a string, a list of items, or None.
        max_items: the most items accepted.
        remote_images: whether http(s) image and file URLs, which the engine would fetch, are let through.
        name: of the parameter, for messages.

    Raises:
        InvalidRequest: names the item and field at fault; never repeats the content.
    """
    if value is None:
        return []
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": value}]}]
    if len(value) > max_items:
        raise InvalidRequest(
            f"'{name}' has {len(value)} items; at most {max_items} are accepted.",
            code="array_above_max_length",
            bound="responses.max_input_items",
            param=name,
        )
    return [_read_item(item, f"{name}[{index}]", remote_images) for index, item in enumerate(value)]


def _read_item(value: Any, path: str, remote_images: bool) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _wrong_type(path, "an object", value)
    item: dict[str, Any] = {key: member for key, member in value.items() if member is not None}
    kind = item.get("type")
    if kind is None:
        kind = "message" if "role" in item else "item_reference" if "id" in item else None
        item = {"type": kind, **item}
    if not isinstance(kind, str) or kind not in INPUT_TYPES:
        if isinstance(kind, str) and kind in TREE_TYPES:
            raise refuse_replay(kind, path)
        shown = repr(kind[:64]) if isinstance(kind, str) else "missing"
        raise InvalidRequest(
            f"The type of '{path}' is {shown}, which is not an input item type.",
            code="invalid_value",
            param=f"{path}.type",
        )
    if kind == "message":
        _check_message(item, path, remote_images)
    else:
        _check_other(item, kind, path, remote_images)
    return item


def _check_other(item: dict[str, Any], kind: str, path: str, remote_images: bool) -> None:
    if kind == "local_shell_call_output" and "id" in item:
        # The API's own form of it names the call by this.
        item.setdefault("call_id", item["id"])
    _check_texts(item, kind, path)
    if kind in REQUIRED_VALUES:
        key, due = REQUIRED_VALUES[kind]
        if not isinstance(item.get(key), due):
            raise _wrong_type(f"{path}.{key}", "an object" if due is dict else "a list", item.get(key))
    if kind in ("function_call_output", "custom_tool_call_output"):
        _check_content(item.get("output"), f"{path}.output", remote_images)
    elif kind == "computer_call_output":
        _check_media(item["output"], f"{path}.output", remote_images)
    elif kind == "reasoning":
        for key in ("summary", "content"):
            if key in item and not isinstance(item[key], str):
                _check_content(item[key], f"{path}.{key}", remote_images)
    elif kind == TRIGGER:
        # One at the end has been taken away.
        raise InvalidRequest(
            f"'{path}' is a compaction_trigger, which must be the last item.", code="invalid_value", param=path
        )


def _check_texts(item: dict[str, Any], kind: str, path: str) -> None:
    for key in REQUIRED_TEXT.get(kind, ()):
        if not isinstance(item.get(key), str) or (key == "call_id" and not item[key]):
            raise _wrong_type(f"{path}.{key}", "a non-empty string" if key == "call_id" else "a string", item.get(key))
    if kind in _NAMESPACED and not isinstance(item.get("namespace"), str | None):
        raise _wrong_type(f"{path}.namespace", "a string or null", item["namespace"])


def _check_message(item: dict[str, Any], path: str, remote_images: bool) -> None:
    role = item.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise InvalidRequest(
            f"'{path}.role' must be one of {', '.join(sorted(ROLES))}.", code="invalid_value", param=f"{path}.role"
        )
    _check_content(item.get("content"), f"{path}.content", remote_images)


def _check_content(content: Any, path: str, remote_images: bool) -> None:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise _wrong_type(path, "a string or a list of parts", content)
    for index, part in enumerate(content):
        where = f"{path}[{index}]"
        if not isinstance(part, dict):
            raise _wrong_type(where, "an object", part)
        kind = part.get("type")
        if isinstance(kind, str) and kind in TEXT_PARTS:
            key = TEXT_PARTS[kind]
            if not isinstance(part.get(key), str):
                raise _wrong_type(f"{where}.{key}", "a string", part.get(key))
        elif kind in MEDIA_PARTS:
            _check_media(part, where, remote_images)
        elif not isinstance(kind, str) or kind not in OTHER_PARTS:
            shown = repr(kind[:64]) if isinstance(kind, str) else "missing"
            raise InvalidRequest(
                f"The type of '{where}' is {shown}, which is not a content part type.",
                code="invalid_value",
                param=f"{where}.type",
            )


def _check_media(part: dict[str, Any], path: str, remote_images: bool) -> None:
    if part.get("file_id") is not None:
        raise InvalidRequest(
            f"'{path}.file_id' is not supported: this gateway keeps no files. Send the data itself as a data URL.",
            code="unsupported_parameter",
            param=f"{path}.file_id",
        )
    for key in ("image_url", "file_url"):
        url = part.get(key)
        if url is None:
            continue
        if not isinstance(url, str):
            raise _wrong_type(f"{path}.{key}", "a string", url)
        if not url[:5].lower().startswith("data:") and not remote_images:
            raise InvalidRequest(
                f"'{path}.{key}' would be fetched by the inference server; send a data: URL, or ask the "
                'operator for [upstream] remote_images = "forward".',
                code="unsupported_parameter",
                param=f"{path}.{key}",
            )


def refuse_replay(kind: str, path: str) -> InvalidRequest:
    """Return the error for an item of a tree of agents that comes as input."""
    return InvalidRequest(
        f"Items of type '{kind}' cannot be sent; name the response that told it in previous_response_id, which brings "
        "back all of its agents.",
        code="unsupported_value",
        param=f"{path}.type",
    )


def _wrong_type(path: str, expected: str, value: Any) -> InvalidRequest:
    return InvalidRequest(
        f"Invalid type for '{path}': expected {expected}, got {json_type(value)}.", code="invalid_type", param=path
    )


def json_type(value: Any) -> str:
    """Return how JSON calls the type of a decoded value, for messages."""
    if value is None:
        return "null or nothing"
    if isinstance(value, bool):
        return "a boolean"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "an array" if isinstance(value, list) else "an object"
