"""What the routes of conversations take and answer."""

from collections.abc import Mapping

from gateway.transport.openapi import failures
from gateway.transport.openapi.operation import CONVERSATIONS, INCLUDE, PAGE, Operation, answer_json
from gateway.transport.openapi.schemas import refer

_MESSAGE = {"role": "user", "content": "My name is Ada."}

# By the name of the handler.
CONVERSATION_OPERATIONS: Mapping[str, Operation] = {
    "create_conversation": Operation(
        summary="Begin a conversation",
        tag=CONVERSATIONS,
        body=refer("ConversationFields"),
        examples={
            "empty": {},
            "with a first item": {"items": [_MESSAGE], "metadata": {"topic": "names"}},
        },
        answers={200: answer_json("Conversation", "The conversation.")},
        failures=(*failures.NEW_ITEMS, *failures.OVERLOAD),
    ),
    "retrieve_conversation": Operation(
        summary="Read a conversation",
        tag=CONVERSATIONS,
        answers={200: answer_json("Conversation", "The conversation.")},
        failures=failures.CONVERSATION,
    ),
    "update_conversation": Operation(
        summary="Replace a conversation's metadata",
        tag=CONVERSATIONS,
        body=refer("ConversationUpdateFields"),
        examples={"a topic": {"metadata": {"topic": "names"}}},
        answers={200: answer_json("Conversation", "The conversation.")},
        failures=(*failures.CONVERSATION, *failures.BODY),
    ),
    "delete_conversation": Operation(
        summary="Delete a conversation",
        tag=CONVERSATIONS,
        answers={200: answer_json("DeletedConversation", "It is gone.")},
        failures=failures.CONVERSATION,
    ),
    "add_items": Operation(
        summary="Add items to a conversation",
        tag=CONVERSATIONS,
        parameters=(INCLUDE,),
        body=refer("AddedItems"),
        examples={"a message": {"items": [_MESSAGE]}},
        answers={200: answer_json("ItemList", "The items.")},
        failures=(*failures.CONVERSATION, *failures.NEW_ITEMS, *failures.TOO_LARGE, *failures.LOCKED),
    ),
    "list_items": Operation(
        summary="List the items of a conversation",
        tag=CONVERSATIONS,
        parameters=PAGE,
        answers={200: answer_json("ItemList", "One page.")},
        failures=(*failures.CONVERSATION, *failures.PAGE),
    ),
    "retrieve_item": Operation(
        summary="Read an item of a conversation",
        tag=CONVERSATIONS,
        parameters=(INCLUDE,),
        answers={200: answer_json("ListedItem", "The item.")},
        failures=failures.ITEM,
    ),
    "delete_item": Operation(
        summary="Take an item out of a conversation",
        tag=CONVERSATIONS,
        answers={200: answer_json("Conversation", "The conversation.")},
        failures=(*failures.ITEM, *failures.LOCKED),
    ),
}
