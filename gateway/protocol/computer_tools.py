"""The computer tools of the API, and what a model may do with a computer."""

from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from gateway.protocol.client_tool import ClientTool, Json, as_text, read_arguments, without_nulls

_SCHEMA: Json = {
    "type": "object",
    "properties": {
        "type": {
            "type": "string",
            "enum": ["click", "double_click", "drag", "keypress", "move", "screenshot", "scroll", "type", "wait"],
        },
        "x": {"type": "integer", "description": "Pixels from the left."},
        "y": {"type": "integer", "description": "Pixels from the top."},
        "button": {"type": "string", "enum": ["left", "right", "wheel", "back", "forward"]},
        "keys": {"type": "array", "items": {"type": "string"}, "description": "Keys to press, or to hold meanwhile."},
        "path": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}},
                "required": ["x", "y"],
            },
            "description": "Where to drag.",
        },
        "scroll_x": {"type": "integer", "description": "Pixels to scroll to the right."},
        "scroll_y": {"type": "integer", "description": "Pixels to scroll down."},
        "text": {"type": "string", "description": "What to type."},
    },
    "required": ["type"],
}


class _Action(Struct, tag_field="type", kw_only=True):
    keys: list[str] | UnsetType = UNSET


class _Place(_Action, kw_only=True):
    x: int
    y: int


class _Click(_Place, tag="click", kw_only=True):
    button: Literal["left", "right", "wheel", "back", "forward"] = "left"


class _DoubleClick(_Place, tag="double_click"):
    pass


class _Move(_Place, tag="move"):
    pass


class _Scroll(_Place, tag="scroll", kw_only=True):
    scroll_x: int = 0
    scroll_y: int = 0


class _Point(Struct):
    x: int
    y: int


class _Drag(_Action, tag="drag", kw_only=True):
    path: list[_Point]


class _Keypress(_Action, tag="keypress", kw_only=True):
    keys: list[str]


class _Screenshot(Struct, tag_field="type", tag="screenshot"):
    pass


class _Type(Struct, tag_field="type", tag="type"):
    text: str


class _Wait(Struct, tag_field="type", tag="wait"):
    pass


_ANY = _Click | _DoubleClick | _Move | _Scroll | _Drag | _Keypress | _Screenshot | _Type | _Wait


class ComputerTool(ClientTool):
    """`computer`: what to do with mouse and keyboard, answered by a picture of the screen."""

    call, output = "computer_call", "computer_call_output"
    blank: ClassVar[Json] = {"pending_safety_checks": [], "actions": []}
    description = "Uses the mouse and keyboard of a computer and returns a picture of its screen."
    parameters: ClassVar[Json] = {
        "type": "object",
        "properties": {"actions": {"type": "array", "items": _SCHEMA, "description": "What to do, in order."}},
        "required": ["actions"],
    }

    def restore(self, arguments: str) -> Json:
        """Return the actions; where one cannot be read, a look at the screen takes the place of all."""
        return {"pending_safety_checks": [], "actions": _read_actions(read_arguments(arguments))}

    def write_arguments(self, item: Json) -> Any:
        """Return the actions, one of the older form included."""
        actions = item.get("actions") or [item.get("action")]
        return {"actions": [without_nulls(action) for action in actions if isinstance(action, dict)]}

    def write_output(self, item: Json) -> Any:
        """Return the picture."""
        screenshot = item.get("output")
        url = screenshot.get("image_url") if isinstance(screenshot, dict) else None
        return [{"type": "input_image", "image_url": url}] if isinstance(url, str) else as_text(screenshot)


class ComputerPreviewTool(ComputerTool):
    """`computer_use_preview`: one action a call."""

    blank: ClassVar[Json] = {"pending_safety_checks": []}
    parameters: ClassVar[Json] = _SCHEMA

    def describe(self, tool: Json) -> tuple[str, Any]:
        """Return the function, with the size of the screen."""
        size = "x".join(str(tool.get(name)) for name in ("display_width", "display_height"))
        return f"{self.description} The screen has {size} pixels.", self.parameters

    def restore(self, arguments: str) -> Json:
        """Return the action."""
        action, *_ = _read_actions(read_arguments(arguments))
        return {"pending_safety_checks": [], "action": action}

    def write_arguments(self, item: Json) -> Any:
        """Return the action."""
        return super().write_arguments(item)["actions"][0] if item.get("action") else {}


def _read_actions(value: Any) -> list[dict[str, Any]]:
    """Return the actions in a model's arguments, at least one.

    Where they are not such as the API has, a look at the screen takes their place: it does no harm and shows the model
    where it stands.

    Args:
        value: an object with `actions`, a list of them, or one.
    """
    given = value.get("actions", value) if isinstance(value, dict) else value
    try:
        read = msgspec.convert(given if isinstance(given, list) else [given], list[_ANY])
    except (msgspec.ValidationError, UnicodeEncodeError):
        read = []
    actions: list[dict[str, Any]] = msgspec.to_builtins(read)
    return actions or [{"type": "screenshot"}]
