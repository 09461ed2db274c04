"""Conversations as callers speak of them: what they send, what they get, and what one may hold."""

import re
from collections.abc import Collection, Iterable
from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.protocol.errors import InvalidRequest
from gateway.protocol.inputs import json_type, read_input

MAX_NEW_ITEMS = 20
"""Most items that one request puts into a conversation, as in the API."""

Metadata = Annotated[
    dict[Annotated[str, Meta(max_length=64)], Annotated[str, Meta(max_length=512)]], Meta(max_length=16)
]
# What can stand in a path, and in every index.
_ITEM_ID = re.compile(r"[^/?#\x00-\x20]{1,64}\Z")


class Conversation(Struct, kw_only=True):
    """A conversation."""

    id: str
    object: str = "conversation"
    created_at: int
    metadata: dict[str, str]


class DeletedConversation(Struct, kw_only=True):
    """That a conversation is gone."""

    id: str
    object: str = "conversation.deleted"
    deleted: bool = True


class ConversationFields(Struct, kw_only=True):
    """What a conversation is made from; null means absent."""

    items: list[Any] | None = None
    metadata: Metadata | None = None


class ConversationUpdateFields(Struct, kw_only=True):
    """What may change in a conversation: its metadata, as a whole."""

    metadata: Metadata | None


class AddedItems(Struct, kw_only=True):
    """Items for a conversation."""

    items: list[Any]


def read_conversation_id(value: str | dict[str, Any], previous_response_id: str | None) -> str:
    """Return the id in the parameter `conversation` of a create.

    Raises:
        InvalidRequest: it is no id, or `previous_response_id` is given as well.
    """
    conversation_id = value.get("id") if isinstance(value, dict) else value
    param = "conversation.id" if isinstance(value, dict) else "conversation"
    if not isinstance(conversation_id, str):
        raise InvalidRequest(
            f"Invalid type for '{param}': expected a string, got {json_type(conversation_id)}.",
            code="invalid_type",
            param=param,
        )
    if not conversation_id:
        raise InvalidRequest(f"'{param}' must be the id of a conversation.", code="invalid_value", param=param)
    if previous_response_id is not None:
        raise InvalidRequest(
            "Send 'conversation' or 'previous_response_id', not both: each says what comes before the input.",
            code="mutually_exclusive_parameters",
            param="previous_response_id",
        )
    return conversation_id


def read_new_items(value: list[Any] | None, *, remote_images: bool) -> list[dict[str, Any]]:
    """Return items for a conversation, checked as the input of a create is.

    Raises:
        InvalidRequest: names the item and field at fault.
    """
    items = value or []
    if len(items) > MAX_NEW_ITEMS:
        raise InvalidRequest(
            f"'items' has {len(items)} items; at most {MAX_NEW_ITEMS} are accepted at once.",
            code="array_above_max_length",
            param="items",
        )
    checked = read_input(items, max_items=MAX_NEW_ITEMS, remote_images=remote_images, name="items")
    for index, item in enumerate(checked):
        if item["type"] == "item_reference":
            raise InvalidRequest(
                f"'items[{index}]' refers to an item; a conversation takes the item itself.",
                code="invalid_value",
                param=f"items[{index}].type",
            )
    return checked


def check_item_ids(ids: Iterable[Any], taken: Collection[str], *, name: str = "input") -> None:
    """Refuse ids that could not tell the items of a conversation apart.

    Args:
        ids: that of each new item, None where one is minted.
        taken: those of the items that are there.
        name: of the parameter that holds the items.

    Raises:
        InvalidRequest: names the item.
    """
    seen = set(taken)
    for index, item_id in enumerate(ids):
        if item_id is None:
            continue
        param = f"{name}[{index}].id"
        if not isinstance(item_id, str) or not _ITEM_ID.match(item_id):
            raise InvalidRequest(
                f"'{param}' must have 1 to 64 characters, without spaces, '/', '?' and '#'; left out, one is made.",
                code="invalid_value",
                param=param,
            )
        if item_id in seen:
            raise duplicate_item(item_id, param)
        seen.add(item_id)


def duplicate_item(item_id: str, param: str) -> InvalidRequest:
    """Return the error about an item whose id another one of the conversation has."""
    return InvalidRequest(
        f"The conversation has an item with id '{item_id[:64]}' already; send only what is new.",
        code="duplicate_item",
        param=param,
    )


def refuse_size(number: int, size: int, max_items: int, max_bytes: int, *, param: str) -> InvalidRequest | None:
    """Return the error about a conversation of so many items and bytes, if that is more than it may hold."""
    if number <= max_items and size <= max_bytes:
        return None
    too_many = number > max_items
    key, bound = ("max_items", f"{max_items} items") if too_many else ("max_bytes", f"{max_bytes} bytes")
    return InvalidRequest(
        f"The conversation would exceed [conversations] {key} ({bound}); delete items from it, or begin another.",
        code="conversation_too_large",
        param=param,
        bound=f"conversations.{key}",
    )
