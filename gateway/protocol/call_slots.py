"""The calls of tools that clients run, while they grow."""

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET

from gateway.protocol import items
from gateway.protocol.call_parts import ArgumentsPart, InputPart
from gateway.protocol.carriage import unwrap_input
from gateway.protocol.items import Status
from gateway.protocol.parts import Part
from gateway.protocol.slots import GivenPart, Slot


class CallSlot(Slot):
    """Base of calls the client answers.

    Attributes:
        carried: the arguments of a custom call that is carried as a function call, kept aside until they are complete.
    """

    __slots__ = ("call_id", "carried", "name", "namespace")

    def __init__(self, item_id: str, call_id: str, name: str, namespace: str | None) -> None:
        super().__init__(item_id)
        self.call_id = call_id
        self.name = name
        self.namespace = namespace
        self.carried: ArgumentsPart | None = None

    @property
    def ready(self) -> bool:
        """A call is announced once its name is known."""
        return bool(self.name)

    @property
    def text_kind(self) -> type[ArgumentsPart]:
        """The kind of text the engine writes for the call."""
        return ArgumentsPart

    def find(self, kind: type[Part], index: int) -> Part | None:
        """Return the carried arguments, or the part as any slot does."""
        return self.carried if self.carried is not None and kind is ArgumentsPart else super().find(kind, index)

    def texts(self) -> list[Part]:
        """Return everything in the call that grows, arguments that are kept aside included."""
        return super().texts() if self.carried is None else [self.carried]

    def read_parts(self, item: dict[str, Any]) -> Iterable[GivenPart]:
        """Yield the arguments or the input."""
        name = "input" if self.text_kind is InputPart else "arguments"
        yield self.text_kind, 0, {"text": item.get(name)}


class FunctionCallSlot(CallSlot):
    """A call of a function tool."""

    __slots__ = ()

    @property
    def engine_type(self) -> str:
        """Function calls are what they are."""
        return "function_call"

    def close(self) -> None:
        """Mark the call as final; without a word from the engine its arguments are the empty text."""
        if self.find(ArgumentsPart, 0) is None:
            self.open_part(ArgumentsPart, 0)
        super().close()

    def render(self, status: Status) -> items.FunctionCall:
        """Return the call with its arguments so far."""
        part = self.find(ArgumentsPart, 0)
        return items.FunctionCall(
            id=self.id,
            status=status,
            call_id=self.call_id,
            name=self.name,
            arguments=part.text if part else "",
            namespace=self.namespace or UNSET,
        )

    def skeleton(self) -> items.FunctionCall:
        """Return the call without arguments."""
        return items.FunctionCall(
            id=self.id,
            status="in_progress",
            call_id=self.call_id,
            name=self.name,
            arguments="",
            namespace=self.namespace or UNSET,
        )


class CustomCallSlot(CallSlot):
    """A call of a custom tool, from an engine that knows them or carried as a function call.

    A carried call's arguments, `{"input": …}`, are kept aside until they are complete; only then the input is known.
    """

    __slots__ = ()

    def __init__(self, item_id: str, call_id: str, name: str, namespace: str | None, *, carried: bool) -> None:
        super().__init__(item_id, call_id, name, namespace)
        if carried:
            self.carried = ArgumentsPart(0)

    @property
    def engine_type(self) -> str:
        """A carried call is a function call to the engine."""
        return "custom_tool_call" if self.carried is None else "function_call"

    @property
    def text_kind(self) -> type[ArgumentsPart]:
        """An engine that knows custom tools writes the input itself."""
        return InputPart if self.carried is None else ArgumentsPart

    def close(self) -> None:
        """Mark the call as final; a carried one gets its input now."""
        part = self.find(InputPart, 0) or self.open_part(InputPart, 0)
        if self.carried is not None:
            if text := unwrap_input(self.carried.text):
                part.push(text)
            self.carried = ArgumentsPart(0)
        super().close()

    def render(self, status: Status) -> items.CustomToolCall:
        """Return the call with its input so far; that of a carried call is empty until it is closed."""
        part = self.find(InputPart, 0)
        return items.CustomToolCall(
            id=self.id,
            status=status,
            call_id=self.call_id,
            name=self.name,
            input=part.text if part else "",
            namespace=self.namespace or UNSET,
        )

    def skeleton(self) -> items.CustomToolCall:
        """Return the call without input."""
        return items.CustomToolCall(
            id=self.id,
            status="in_progress",
            call_id=self.call_id,
            name=self.name,
            input="",
            namespace=self.namespace or UNSET,
        )
