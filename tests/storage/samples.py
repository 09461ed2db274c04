"""Responses to store."""

from itertools import count

from gateway.ports import StoredAgent, StoredItem, StoredResponse

_numbers = count(1)


def make_item(text: str = "hello", **changes) -> StoredItem:
    fields = {"role": "output", "type": "message", "id": "msg_1", "data": f'{{"text":"{text}"}}'.encode()}
    return StoredItem(**{**fields, **changes})


def make_agent(text: str = "{}", **changes) -> StoredAgent:
    fields = {"path": "/root", "status": "completed", "state": text.encode()}
    return StoredAgent(**{**fields, **changes})


def make_response(*items: StoredItem, **changes) -> StoredResponse:
    fields = {
        "id": f"resp_{next(_numbers):032x}",
        "principal": "local",
        "status": "completed",
        "model": "m",
        "created_at": 1_700_000_000,
        "snapshot": b'{"output":[]}',
        "items": items,
    }
    return StoredResponse(**{**fields, **changes})


def make_chain(length: int, **changes) -> list[StoredResponse]:
    """Responses that continue each other, each with one input and one output item named after its place."""
    chain: list[StoredResponse] = []
    for place in range(length):
        parent = chain[-1].id if chain else None
        items = [make_item(f"in {place}", role="input"), make_item(f"out {place}")]
        chain.append(make_response(*items, parent_id=parent, **changes))
    return chain
