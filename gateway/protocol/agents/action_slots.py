"""Items that only trees of agents have: calls of actions, their outputs, and the mail that agents get.

All of them are there whole or not at all, so none has a status. A client may carry what agents write to each other,
but need not be able to read it: a `Seal` makes a token of it.
"""

from collections.abc import Callable
from typing import Any

from gateway.protocol import codec
from gateway.protocol.agents.mail import Mail
from gateway.protocol.call_parts import ArgumentsPart
from gateway.protocol.call_slots import CallSlot
from gateway.protocol.items import OutputText, Status
from gateway.protocol.ledger import text_bytes
from gateway.protocol.slots import Slot

CALL = "multi_agent_call"
OUTPUT = "multi_agent_call_output"
MESSAGE = "agent_message"

# What clients may read of arguments. All else may be what one agent says to another, under whatever name.
_READABLE = frozenset({"task_name", "fork_turns", "target", "timeout_ms", "path_prefix"})

Seal = Callable[[str], str]
"""Makes a token of a text, which may hold halves of surrogate pairs."""


def seal_arguments(arguments: str, seal: Seal) -> str:
    """Return arguments as a client sees them: what it may read as it is, the message a token, in the model's order.

    Members that no action has are tokens too. Arguments that are no object are one token, for who knows what they hold.
    """
    if not arguments.strip():
        return arguments
    try:
        given = codec.decode(arguments.encode("utf-8", "surrogatepass"))
    except ValueError:
        given = None
    if not isinstance(given, dict):
        return seal(arguments)
    hidden = {name: value for name, value in given.items() if name not in _READABLE}
    if not hidden:
        return arguments
    shown = {
        name: seal(value if isinstance(value, str) else codec.encode(value).decode()) for name, value in hidden.items()
    }
    return codec.encode({**given, **shown}).decode()


class ActionSlot(CallSlot):
    """A call of an action; its arguments are kept aside, and shown once it is known what came of it.

    Args:
        item_id: its id.
        call_id: what its output names.
        action: the action.

    Attributes:
        awaits: the action is still to be carried out.
    """

    __slots__ = ("_shown", "awaits")

    def __init__(self, item_id: str, call_id: str, action: str) -> None:
        super().__init__(item_id, call_id, action, None)
        self.awaits = True
        self.carried: ArgumentsPart = ArgumentsPart(0)
        self._shown: str | None = None

    @property
    def engine_type(self) -> str:
        """A function call to the engine."""
        return "function_call"

    @property
    def action(self) -> str:
        """The action."""
        return self.name

    @property
    def arguments(self) -> str:
        """The arguments so far, as the model wrote them."""
        return self.carried.text

    def cut(self) -> bool:
        """Forget it: nothing is done with half its arguments, and the item has no form for it."""
        return False

    def conclude(self, seal: Seal | None) -> None:
        """Take note that the action was carried out; without a seal the client can read everything."""
        self.awaits = False
        self._shown = self.arguments if seal is None else seal_arguments(self.arguments, seal)

    def charge(self, status: Status = "completed") -> int:
        """Return the charge of the item, and that of the arguments as the model wrote them where it shows others."""
        kept = text_bytes(self.arguments) if self._shown is None or self._shown != self.arguments else 0
        return super().charge(status) + kept

    def render(self, status: Status) -> dict[str, Any]:  # noqa: ARG002 - it has none
        """Return the call."""
        return {**self.skeleton(), "arguments": self._shown or ""}

    def skeleton(self) -> dict[str, Any]:
        """Return the call without arguments."""
        return {"type": CALL, "id": self.id, "call_id": self.call_id, "action": self.action, "arguments": ""}


class ActionOutputSlot(Slot):
    """What came of an action.

    Args:
        item_id: its id.
        call_id: the call.
        action: the action.
        text: what the model reads.
    """

    __slots__ = ("_action", "_call_id", "_text")

    def __init__(self, item_id: str, call_id: str, action: str, text: str) -> None:
        super().__init__(item_id)
        self._call_id = call_id
        self._action = action
        self._text = text

    def render(self, status: Status) -> dict[str, Any]:  # noqa: ARG002 - it has none
        """Return the output."""
        return {**self.skeleton(), "output": [OutputText(text=self._text)]}

    def skeleton(self) -> dict[str, Any]:
        """Return the output without its text."""
        return {"type": OUTPUT, "id": self.id, "call_id": self._call_id, "action": self._action, "output": []}


class MailSlot(Slot):
    """A message that an agent got from another one; it belongs to the one that got it.

    Args:
        item_id: its id.
        mail: the message.
        seal: hides the text from the client; None shows it.

    Attributes:
        agent: path of the recipient.
    """

    __slots__ = ("_author", "_part", "agent")

    def __init__(self, item_id: str, mail: Mail, seal: Seal | None) -> None:
        super().__init__(item_id)
        self.agent = mail.recipient
        self._author = mail.author
        self._part = (
            {"type": "input_text", "text": mail.payload}
            if seal is None
            else {"type": "encrypted_content", "encrypted_content": seal(mail.payload)}
        )

    def render(self, status: Status) -> dict[str, Any]:  # noqa: ARG002 - it has none
        """Return the message."""
        return {**self.skeleton(), "content": [self._part]}

    def skeleton(self) -> dict[str, Any]:
        """Return the message without content."""
        return {"type": MESSAGE, "id": self.id, "author": self._author, "recipient": self.agent, "content": []}
