"""The growing texts of tool calls: arguments and tool input."""

from gateway.protocol import codec, events
from gateway.protocol.events import Event
from gateway.protocol.parts import Owner, Part


class ArgumentsPart(Part):
    """Arguments of a function call."""

    __slots__ = ()

    def base_charge(self) -> int:
        """Return 0: the empty string is part of the item already."""
        return 0

    def _is_whole(self, opening: str) -> bool:
        """Nothing follows a JSON value."""
        try:
            codec.decode(opening.encode("utf-8", "surrogatepass"))
        except ValueError:
            return False
        return True

    def _added(self, owner: Owner) -> list[Event]:  # noqa: ARG002
        return []

    def _delta(self, text: str, owner: Owner) -> Event:
        return events.FunctionArgumentsDelta(delta=text, item_id=owner.id, output_index=owner.output_index)

    def _text_done(self, owner: Owner) -> Event:
        return events.FunctionArgumentsDone(arguments=self.text, item_id=owner.id, output_index=owner.output_index)

    def _done(self, owner: Owner) -> list[Event]:  # noqa: ARG002
        return []


class InputPart(ArgumentsPart):
    """Input of a custom tool call."""

    __slots__ = ()

    def _is_whole(self, opening: str) -> bool:  # noqa: ARG002
        """Input is free text."""
        return False

    def _delta(self, text: str, owner: Owner) -> Event:
        return events.CustomInputDelta(delta=text, item_id=owner.id, output_index=owner.output_index)

    def _text_done(self, owner: Owner) -> Event:
        return events.CustomInputDone(input=self.text, item_id=owner.id, output_index=owner.output_index)


class McpArgumentsPart(ArgumentsPart):
    """Arguments of a call of a tool on an MCP server."""

    __slots__ = ()

    def _delta(self, text: str, owner: Owner) -> Event:
        return events.McpArgumentsDelta(delta=text, item_id=owner.id, output_index=owner.output_index)

    def _text_done(self, owner: Owner) -> Event:
        return events.McpArgumentsDone(arguments=self.text, item_id=owner.id, output_index=owner.output_index)
