"""What it takes to carry a tool of the API that the client runs itself.

Models know functions only. Such a tool is worded as a function, the arguments that a model writes for it become the
item the API has, and items of history are turned back. Whatever a model writes becomes a valid item: what cannot be
read as agreed is handed on as text, so that the tool itself tells the model what is wrong with it.
"""

from collections.abc import Iterable
from typing import Any, ClassVar

from gateway.protocol import codec
from gateway.protocol.events import Event

Json = dict[str, Any]


class ClientTool:
    """One type of tool.

    Attributes:
        call: type of the item a call becomes.
        output: type of the item that answers it.
        can_be_cut: whether the item has a form for a call that was cut off.
        blank: the members of the call's item while nothing is known of it.
        description: what the model is told of the tool.
        parameters: what it is to write, as a JSON schema.
    """

    call: ClassVar[str]
    output: ClassVar[str]
    can_be_cut: ClassVar[bool] = True
    blank: ClassVar[Json]
    description: ClassVar[str]
    parameters: ClassVar[Json]

    def is_clients(self, tool: Json) -> bool:  # noqa: ARG002
        """Tell whether a declaration means that the client runs the tool."""
        return True

    def describe(self, tool: Json) -> tuple[str, Any]:  # noqa: ARG002
        """Return the description and the parameters of the function that carries a declared tool."""
        return self.description, self.parameters

    def restore(self, arguments: str) -> Json:
        """Return the members of the call's item that the arguments tell, for any arguments."""
        raise NotImplementedError

    def is_whole(self, arguments: str) -> bool:
        """Tell whether the arguments are such as were agreed; asked where the item has no form for less."""
        raise NotImplementedError

    def begin(self, members: Json) -> Json:  # noqa: ARG002
        """Return the members as they are shown when the item is announced: empty."""
        return self.blank

    def tell(self, members: Json, output_index: int) -> Iterable[Event]:  # noqa: ARG002
        """Return the events between `output_item.added` and `done`."""
        return ()

    def write_arguments(self, item: Json) -> Any:
        """Return the arguments that a call's item of history stands for."""
        raise NotImplementedError

    def write_output(self, item: Json) -> Any:
        """Return an output's item of history as the output of a function: a text, or parts."""
        raise NotImplementedError


def read_arguments(arguments: str) -> Any:
    """Return the value of a model's arguments; what is no JSON is a text."""
    try:
        return codec.decode(arguments.encode("utf-8", "surrogatepass"))
    except ValueError:
        return arguments


def without_nulls(value: Any) -> Json:
    """Return the members of an object that say something; nothing of what is none."""
    return {name: member for name, member in value.items() if member is not None} if isinstance(value, dict) else {}


def pick(value: Any, names: tuple[str, ...]) -> Json:
    """Return some members of an object, those that say something."""
    return {name: value[name] for name in names if value.get(name) is not None} if isinstance(value, dict) else {}


def as_text(value: Any) -> str:
    """Return a value as a text: itself, or its JSON."""
    return value if isinstance(value, str) else codec.encode(value).decode()
