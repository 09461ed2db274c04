"""The document is valid, whole and made from the code."""

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from jsonschema import Draft202012Validator
from litestar import Litestar
from openapi_spec_validator import OpenAPIV31SpecValidator

from gateway.app import Gateway, build_parts
from gateway.config.schema import GatewayConfig
from gateway.protocol.errors import GatewayError
from gateway.protocol.events import CATALOGUE, Event
from gateway.storage.memory import MemoryStore
from gateway.transport.openapi.docs import DOCS_ROUTES, ApiDocs
from gateway.transport.openapi.document import build_document
from gateway.transport.openapi.failures import EVERY, UPSTREAM
from gateway.transport.openapi.operations import OPERATIONS, RAW_ROUTES
from gateway.transport.paths import OPEN_PATHS
from gateway.transport.routes import ROUTES

ROOT = Path(__file__).parents[3]
DOCUMENT = msgspec.json.decode(ApiDocs().document.body)
SCHEMAS = DOCUMENT["components"]["schemas"]
OPERATIONS_FOUND = [operation for methods in DOCUMENT["paths"].values() for operation in methods.values()]


def find_routes(app: Litestar) -> set[tuple[str, str]]:
    """Every method and path of an app; the raw route takes any method, so what it refuses is asked elsewhere."""
    found = {(method, route.path) for route in app.routes for method in route.methods or RAW_ROUTES[route.path]}
    return {(method, re.sub(r":\w+}", "}", path)) for method, path in found if method != "OPTIONS"}


def public_app() -> Litestar:
    parts = build_parts(GatewayConfig(), store=MemoryStore())
    return Gateway(parts)._routes


def subclasses(kind: type) -> set[type]:
    return {kind, *(inner for each in kind.__subclasses__() for inner in subclasses(each))}


def test_the_document_is_valid() -> None:
    assert list(OpenAPIV31SpecValidator(DOCUMENT).iter_errors()) == []


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_one(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])
    assert SCHEMAS[name]["description"]


def test_every_route_is_described_and_nothing_else() -> None:
    described = {(method.upper(), path) for path, methods in DOCUMENT["paths"].items() for method in methods}
    assert described == find_routes(public_app())


def test_a_route_without_a_description_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.transport.openapi.document.OPERATIONS", {**OPERATIONS, "livez": None})
    with pytest.raises(AttributeError):
        build_document((*ROUTES, *DOCS_ROUTES))


def test_no_description_is_of_a_route_that_is_gone() -> None:
    assert {operation["operationId"] for operation in OPERATIONS_FOUND} == set(OPERATIONS)


def test_every_event_is_described_by_its_type() -> None:
    mapping = SCHEMAS["StreamEvent"]["discriminator"]["mapping"]
    assert mapping.keys() == CATALOGUE.keys()
    assert [entry["$ref"] for entry in SCHEMAS["StreamEvent"]["oneOf"]] == list(mapping.values())
    for type_, reference in mapping.items():
        schema = SCHEMAS[reference.rpartition("/")[2]]
        assert schema["properties"]["type"] == {"enum": [type_]}
        assert "type" in schema["required"]
        assert "sequence_number" in schema["required"]


def test_what_is_always_sent_is_required_and_what_may_be_unset_is_not() -> None:
    assert {"id", "error", "usage", "metadata", "output"} <= set(SCHEMAS["Response"]["required"])
    assert set(SCHEMAS["ResponseError"]["required"]) == {"code", "message"}
    assert "default" not in str(SCHEMAS["Usage"])
    assert "encrypted_content" not in SCHEMAS["Reasoning"]["required"]


def test_attributes_are_described_by_the_documentation_of_their_class() -> None:
    assert SCHEMAS["ErrorObject"]["description"] == "What went wrong."
    assert SCHEMAS["ErrorObject"]["properties"]["limit"]["description"] == "that limit in bytes."
    assert SCHEMAS["OutputTextDelta"]["description"] == "Belongs to one content part of an item."
    assert Event.__doc__ is not None


def test_every_error_of_the_reference_is_described() -> None:
    page = (ROOT / "docs/reference/errors.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| `(\w+)` \|", page, re.MULTILINE)
    listed = {(code, int(status), type_) for code, status, type_ in rows}
    known = {(failure.code, failure.status, failure.type) for failure in EVERY}
    assert known == listed, "gateway/transport/openapi/failures.py and docs/reference/errors.md differ"


def test_every_error_class_is_described() -> None:
    raised = {(kind.code, kind.status) for kind in subclasses(GatewayError) if kind.__module__.startswith("gateway.")}
    assert raised - {(failure.code, failure.status) for failure in EVERY} == set()


@pytest.mark.parametrize("operation", OPERATIONS_FOUND, ids=lambda operation: operation["operationId"])
def test_every_operation_tells_how_it_fails_and_names_the_request(operation: dict) -> None:
    responses = operation["responses"]
    assert {"400", "403", "408", "431", "500"} <= responses.keys()
    assert all("x-request-id" in answer["headers"] for answer in responses.values())
    assert (
        ("4XX" in responses) == ("502" in responses) == (UPSTREAM[0] in OPERATIONS[operation["operationId"]].failures)
    )
    assert operation["description"]


def test_the_end_of_a_stream_is_told() -> None:
    text = DOCUMENT["paths"]["/v1/responses"]["post"]["description"]
    assert "[DONE]" in text
    assert "response.incomplete" in text


def test_the_document_is_the_same_in_every_process() -> None:
    program = "from gateway.transport.openapi.docs import ApiDocs; print(ApiDocs().document.tag, ApiDocs().page.tag)"
    tags = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(tags) == 1


def test_the_reference_lists_every_operation() -> None:
    page = (ROOT / "docs/reference/api.md").read_text()
    rows = re.findall(r"^\| `([A-Z]+)` \| `(/\S*)` \| (.+) \|$", page, re.MULTILINE)
    described = {
        (method.upper(), path, operation["summary"])
        for path, methods in DOCUMENT["paths"].items()
        for method, operation in methods.items()
    }
    assert set(rows) == described


def test_where_callers_are_asked_who_they_are_every_route_but_the_open_ones_says_so() -> None:
    document = msgspec.json.decode(ApiDocs(needs_key=True).document.body)
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []
    for path, operations in document["paths"].items():
        for operation in operations.values():
            guarded = path not in OPEN_PATHS
            assert operation["security"] == ([{"bearer": []}] if guarded else [])
            assert ("401" in operation["responses"]) == guarded
            if guarded:
                assert "WWW-Authenticate" in operation["responses"]["401"]["headers"]
    assert "no key" not in document["info"]["description"]
    assert "securitySchemes" not in DOCUMENT["components"]
    assert not any("401" in operation["responses"] for operation in OPERATIONS_FOUND)
