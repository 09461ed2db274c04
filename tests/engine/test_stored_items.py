"""What the columns of a stored item say of it."""

from typing import Any

import pytest

from gateway.engine.stored_items import build_stored_item
from gateway.protocol import codec
from gateway.protocol.ids import UuidIds
from gateway.protocol.items import AgentRef, Message

ALPHA = "/root/alpha"
CALL = {"type": "multi_agent_call", "id": "mac_1", "call_id": "call_1", "action": "list_agents", "arguments": "{}"}


def message(**more: Any) -> Message:
    return Message(id="msg_1", status="completed", content=[], **more)


@pytest.mark.parametrize(
    ("item", "agent"),
    [
        (message(), "/root"),
        (message(agent=AgentRef(agent_name=ALPHA)), ALPHA),
        (CALL, "/root"),
        ({**CALL, "agent": {"agent_name": ALPHA}}, ALPHA),
        ({**CALL, "agent": {"agent_name": 7}}, "/root"),
        ({**CALL, "agent": ALPHA}, "/root"),
    ],
)
def test_an_output_item_belongs_to_the_agent_it_names(item: Any, agent: str):
    stored = build_stored_item(UuidIds(), "output", item, codec.encode(item))
    assert (stored.agent, stored.id) == (agent, item["id"] if isinstance(item, dict) else "msg_1")


def test_what_a_client_sends_is_the_roots():
    item = {**CALL, "agent": {"agent_name": ALPHA}}
    stored = build_stored_item(UuidIds(), "input", item, codec.encode(item))
    assert (stored.agent, stored.type, stored.call_id) == ("/root", "multi_agent_call", "call_1")
