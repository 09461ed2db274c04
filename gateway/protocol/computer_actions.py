"""Actions of the computer tools: what a model may write, read leniently, returned as the API words them."""

from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

SCHEMA: dict[str, Any] = {
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


def read_actions(value: Any) -> list[dict[str, Any]]:
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
