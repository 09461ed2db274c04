"""Checks what was answered against the gateway's own OpenAPI document, more strictly than clients would.

The document leaves objects open, so that a later gateway may say more. Here everything made from a class is closed:
a member that is sent and not described is a fault.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any

import jsonschema_rs
import msgspec

from gateway.transport.openapi.docs import ApiDocs

# Carried as they came, whatever else they hold.
OPEN = frozenset({"ListedItem", "Model", "OtherItem"})


class Description:
    """The document's schemas of what is sent."""

    def __init__(self) -> None:
        schemas = msgspec.json.decode(ApiDocs().document.body)["components"]["schemas"]
        self._events = schemas["StreamEvent"]["discriminator"]["mapping"]
        closed = {
            name: schema if name in OPEN or "required" not in schema else {**schema, "additionalProperties": False}
            for name, schema in schemas.items()
        }
        self._components = {"components": {"schemas": closed}}
        self._validators: dict[str, Any] = {}

    def check_event(self, event: Mapping[str, Any]) -> list[str]:
        """Return what is wrong with one event of a stream."""
        reference = self._events.get(event.get("type", ""))
        return ["there is no such event"] if reference is None else self._check(reference, event)

    def check(self, name: str, value: Any) -> list[str]:
        """Return what is wrong with a value that a named schema describes."""
        return self._check(f"#/components/schemas/{name}", value)

    def _check(self, reference: str, value: Any) -> list[str]:
        if reference not in self._validators:
            schema = {"$ref": reference, **self._components}
            self._validators[reference] = jsonschema_rs.Draft202012Validator(schema)
        errors = self._validators[reference].iter_errors(value)
        return [f"not as described: {error.message[:200]} at {list(error.instance_path)}" for error in errors]


@cache
def description() -> Description:
    """The document, read once."""
    return Description()
