"""What agents write to each other."""

from enum import StrEnum
from typing import Any

from msgspec import Struct

Item = dict[str, Any]


class MailKind(StrEnum):
    """What a message is for."""

    NEW_TASK = "NEW_TASK"
    MESSAGE = "MESSAGE"
    FINAL_ANSWER = "FINAL_ANSWER"


class Mail(Struct, frozen=True, kw_only=True):
    """A message from one agent to another.

    Attributes:
        kind: what it is for. Only a NEW_TASK gives an idle agent work.
        author: path of the agent that wrote it.
        recipient: path of the agent it is for.
        payload: the text, never sealed here.
    """

    kind: MailKind
    author: str
    recipient: str
    payload: str

    def show(self) -> str:
        """Return the text the recipient's model reads."""
        head = f"Message Type: {self.kind.value}\nTask name: {self.recipient}\nSender: {self.author}\nPayload:\n"
        return head + self.payload

    def to_item(self) -> Item:
        """Return the message as an item of a history."""
        return {
            "type": "agent_message",
            "kind": self.kind.value,
            "author": self.author,
            "recipient": self.recipient,
            "payload": self.payload,
        }


def read_mail(item: Item) -> Mail:
    """Return the message of an `agent_message` of a history."""
    return Mail(
        kind=MailKind(item["kind"]), author=item["author"], recipient=item["recipient"], payload=item["payload"]
    )
