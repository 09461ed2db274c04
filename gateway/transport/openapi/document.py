"""The OpenAPI document: every route with what it takes and answers."""

import inspect
import re
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from itertools import groupby, product
from operator import attrgetter
from typing import Any, NamedTuple

from litestar.handlers import HTTPRouteHandler

from gateway import __version__
from gateway.protocol.errors import Unauthorized
from gateway.transport.openapi import failures
from gateway.transport.openapi.failures import Failure
from gateway.transport.openapi.operation import JSON, TAGS, Answer, Operation
from gateway.transport.openapi.operations import OPERATIONS, RAW_ROUTES
from gateway.transport.openapi.received import build_received_schemas
from gateway.transport.openapi.schemas import Schema, build_sent_schemas, refer
from gateway.transport.paths import OPEN_PATHS

_PARAMETER = re.compile(r"{(\w+):(\w+)}")
_ABOUT = """\
The OpenAI Responses API in front of an inference server.

Every answer has an `x-request-id`, under which the gateway's log tells of the request. Every failure has the same
body, with a stable `code`. An unknown path is answered 404 with `route_not_found`, a method that a path does not take
405 with `method_not_allowed` and the header `Allow`. Query parameters and members that are not described are let
through.

Operators may let further paths of the inference server through, such as `/v1/chat/completions`; these are as the server
describes them."""
_WITHOUT_KEYS = "Callers need no key; one that is sent is not looked at."
_WITH_KEYS = "Callers need a key or a token, as `Authorization: Bearer …`. What they store is theirs alone."
_SCHEME = "bearer"

_HEADERS: dict[str, Schema] = {
    "x-request-id": {
        "description": "Names the request in the gateway's log.",
        "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,128}$"},
    },
    "x-gateway-unsupported-tools": {
        "description": "Types of hosted tools that were left out, separated by commas; absent when there are none.",
        "schema": {"type": "string"},
    },
    "Retry-After": {"description": "When to try again, in seconds.", "schema": {"type": "integer", "minimum": 1}},
    "x-should-retry": {
        "description": "Whether trying again can help; absent where the client decides.",
        "schema": {"enum": ["true", "false"]},
    },
    "WWW-Authenticate": {"description": "Names the scheme, `Bearer`.", "required": True, "schema": {"type": "string"}},
    "Allow": {"description": "The methods the path takes.", "required": True, "schema": {"type": "string"}},
    "ETag": {"description": "Changes with the content.", "required": True, "schema": {"type": "string"}},
    "Cache-Control": {"description": "How long a copy may be used.", "required": True, "schema": {"type": "string"}},
}  # fmt: skip
_EVERYWHERE = ("x-request-id",)
_ON_FAILURES = (*_EVERYWHERE, "Retry-After", "x-should-retry")

_PARAMETERS: dict[str, Schema] = {
    "RequestId": {
        "name": "x-request-id",
        "in": "header",
        "description": "An id for this request: up to 128 letters, digits, `.`, `_` and `-`; any other is replaced.",
        "schema": {"type": "string"},
    },
    "TraceParent": {
        "name": "traceparent",
        "in": "header",
        "description": "The caller's span, as W3C Trace Context has it; what is malformed is not looked at.",
        "schema": {"type": "string"},
    },
    "TraceState": {
        "name": "tracestate",
        "in": "header",
        "description": "Goes with traceparent.",
        "schema": {"type": "string"},
    },
    "Baggage": {
        "name": "baggage",
        "in": "header",
        "description": "Handed on to the inference server as it is.",
        "schema": {"type": "string"},
    },
}


class Described(NamedTuple):
    """One method of one path, with what is known of it."""

    path: str
    method: str
    name: str
    operation: Operation
    text: str


def build_document(handlers: Iterable[HTTPRouteHandler], *, needs_key: bool = False) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the raw route and of the given handlers.

    Args:
        handlers: the typed routes.
        needs_key: whether callers are asked who they are.

    Raises:
        KeyError: there is no description of a handler.
    """
    paths: dict[str, Schema] = {}
    for each in _walk(handlers):
        paths.setdefault(_PARAMETER.sub(r"{\1}", each.path), {})[each.method.lower()] = _describe(each, needs_key)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Responses Gateway",
            "version": __version__,
            "description": f"{_ABOUT}\n\n{_WITH_KEYS if needs_key else _WITHOUT_KEYS}",
            "license": {"name": "Apache License 2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/"}],
        "tags": [{"name": name, "description": text} for name, text in TAGS.items()],
        "paths": paths,
        "components": {
            "schemas": {**build_received_schemas(), **_name_codes(build_sent_schemas())},
            "parameters": _PARAMETERS,
            "headers": _HEADERS,
            "responses": {
                "RouteNotFound": _failure(failures.NO_ROUTE, open_ended=False),
                "MethodNotAllowed": _failure(failures.NO_METHOD, open_ended=False, headers=("Allow",)),
            },
            **({"securitySchemes": {_SCHEME: {"type": "http", "scheme": _SCHEME}}} if needs_key else {}),
        },
    }


def _walk(handlers: Iterable[HTTPRouteHandler]) -> Iterator[Described]:
    for path, methods in RAW_ROUTES.items():
        for method, name in methods.items():
            yield Described(path, method, name, OPERATIONS[name], OPERATIONS[name].description)
    for handler in handlers:
        name = handler.handler_name
        # Every path has OPTIONS, which tells its methods.
        for path, method in product(sorted(handler.paths), sorted(handler.http_methods - {"OPTIONS"})):
            yield Described(path, method, name, OPERATIONS[name], inspect.getdoc(handler.fn) or "")


def _describe(each: Described, needs_key: bool) -> Schema:
    operation = each.operation
    is_guarded = needs_key and each.path not in OPEN_PATHS
    placeholders = [_placeholder(name, kind) for name, kind in _PARAMETER.findall(each.path)]
    everywhere = [{"$ref": f"#/components/parameters/{name}"} for name in _PARAMETERS]
    described: Schema = {
        "operationId": each.name,
        "summary": operation.summary,
        "description": each.text,
        "tags": [operation.tag],
        "parameters": [*placeholders, *operation.parameters, *everywhere],
    }
    if operation.body is not None:
        examples = {name: {"value": value} for name, value in operation.examples.items()}
        body = {"schema": operation.body, "examples": examples}
        described["requestBody"] = {"required": True, "content": {JSON: body}}
    if needs_key:
        described["security"] = [{_SCHEME: []}] if is_guarded else []
    described["responses"] = _responses(operation, has_placeholders=bool(placeholders), is_guarded=is_guarded)
    return described


def _placeholder(name: str, kind: str) -> Schema:
    schema = {"type": "string", "minLength": 1}
    note = {"description": "May hold slashes."} if kind == "path" else {}
    return {"name": name, "in": "path", "required": True, "schema": schema, **note}


def _responses(operation: Operation, *, has_placeholders: bool, is_guarded: bool) -> Schema:
    responses = {str(status): _answer(answer) for status, answer in operation.answers.items()}
    every = [*operation.failures, *failures.ANYWHERE, *(failures.NO_ROUTE if has_placeholders else ())]
    every += failures.ACCESS if is_guarded else ()
    status = attrgetter("status")
    for code, alike in groupby(sorted(every, key=status), status):
        headers = ("WWW-Authenticate",) if code == Unauthorized.status else ()
        failed = _failure(tuple(alike), open_ended=operation.refusals, headers=headers)
        responses[str(code)] = _merge(responses[str(code)], failed) if str(code) in responses else failed
    responses = dict(sorted(responses.items()))
    if operation.refusals:
        responses["4XX"] = {
            "description": "The inference server refused the request; status, message, type and code are its own.",
            "headers": _refer_headers(*_ON_FAILURES),
            "content": {JSON: {"schema": refer("ErrorEnvelope")}},
        }
    return responses


def _answer(answer: Answer) -> Schema:
    described: Schema = {
        "description": answer.description,
        "headers": _refer_headers(*_EVERYWHERE, *answer.headers),
    }
    if answer.media:
        described["content"] = {media: {"schema": schema} for media, schema in answer.media.items()}
    if answer.links:
        described["links"] = answer.links
    return described


def _failure(alike: tuple[Failure, ...], *, open_ended: bool, headers: tuple[str, ...] = ()) -> Schema:
    """Describe failures of one status; open-ended where an inference server's own codes get through."""
    envelope = refer("ErrorEnvelope")
    if not open_ended:
        words = {
            "code": {"enum": sorted({failure.code for failure in alike})},
            "type": {"enum": sorted({failure.type for failure in alike})},
        }
        envelope = {"allOf": [envelope, {"properties": {"error": {"properties": words}}}]}
    phrase = HTTPStatus(alike[0].status).phrase
    cases = "\n".join(f"* `{failure.code}`: {failure.when}" for failure in alike)
    return {
        "description": f"{phrase}\n\n{cases}",
        "headers": _refer_headers(*_ON_FAILURES, *headers),
        "content": {JSON: {"schema": envelope}},
    }


def _merge(answer: Schema, failed: Schema) -> Schema:
    """Return the description of a status that is a failure in one case and an answer of the route in another."""
    schemas = [described["content"][JSON]["schema"] for described in (answer, failed)]
    return {
        "description": f"{answer['description']}\n\n{failed['description']}",
        "headers": {**answer["headers"], **failed["headers"]},
        "content": {JSON: {"schema": {"anyOf": schemas}}},
    }


def _refer_headers(*names: str) -> Schema:
    return {name: {"$ref": f"#/components/headers/{name}"} for name in names}


def _name_codes(schemas: dict[str, Schema]) -> dict[str, Schema]:
    """Say which codes there are: inference servers have others besides, so that it is no closed list."""
    code: Schema = schemas["ErrorObject"]["properties"]["code"]
    code["examples"] = sorted({failure.code for failure in failures.EVERY})
    return schemas
