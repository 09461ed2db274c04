"""An MCP server as a request declares it: read, checked, and shown again without its secrets."""

import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct

from gateway.config.addresses import parse_headers
from gateway.config.mcp_servers import LABEL, OWN_HEADERS
from gateway.config.schema import McpConfig
from gateway.protocol.errors import InvalidRequest
from gateway.protocol.inputs import json_type
from gateway.tools.mcp.egress import Egress, EgressRefused

_REDACTED: Final = "<redacted>"
_MAX_URL: Final = 2048
_MAX_HEADERS: Final = 32
_MAX_HEADER: Final = 8192
_MAX_NAMES: Final = 1024
_HEADER_VALUE: Final = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class ToolFilter(Struct, frozen=True, kw_only=True):
    """Which tools of a server are meant.

    Attributes:
        names: their names, or None for any.
        read_only: whether only such that say they change nothing.
    """

    names: frozenset[str] | None = None
    read_only: bool = False

    def takes(self, name: str, *, read_only: bool) -> bool:
        """Tell whether a tool is meant."""
        return (self.names is None or name in self.names) and (read_only or not self.read_only)


ANY_TOOL: Final = ToolFilter()
NO_TOOL: Final = ToolFilter(names=frozenset())


class Declaration(Struct, frozen=True, kw_only=True):
    """One server of a request.

    Attributes:
        label: what the request calls it.
        url: where it is, or None for the server of the configuration with that label.
        headers: sent to it besides those of the configuration, names in lower case.
        description: what it is for, or None.
        allowed: the tools that may be used.
        always: those to be approved; they win over `never`.
        never: those not to be approved.
        default: whether the others are to be approved.
    """

    label: str
    url: str | None
    headers: Mapping[str, str]
    description: str | None
    allowed: ToolFilter
    always: ToolFilter
    never: ToolFilter
    default: bool

    def asks(self, name: str, *, read_only: bool) -> bool:
        """Tell whether the client is to approve calls of a tool."""
        if self.always.takes(name, read_only=read_only):
            return True
        return self.default and not self.never.takes(name, read_only=read_only)


def read_declaration(tool: Mapping[str, Any], path: str, config: McpConfig) -> Declaration:
    """Read a declaration.

    Args:
        tool: as the request has it.
        path: where, for example `tools[2]`.
        config: which servers there are, and where those of requests may be.

    Raises:
        InvalidRequest: names the parameter at fault; no secret is repeated.
    """
    if tool.get("connector_id") is not None:
        raise _refuse(
            f"{path}.connector_id", "is not supported: this gateway has no connectors", "unsupported_parameter"
        )
    label = _read_text(tool, "server_label", path)
    if label is None or not LABEL.fullmatch(label):
        raise _refuse(f"{path}.server_label", "must be 1 to 64 letters, digits, _ and -")
    url = _read_url(tool, label, path, config)
    headers = _read_headers(tool, path)
    server = config.servers.get(label) if url is None else None
    if headers and server is not None and server.command is not None:
        name = "authorization" if tool.get("authorization") is not None else "headers"
        raise _refuse(f"{path}.{name}", "cannot be sent to this server, which is a program of the gateway's")
    always, never, default = _read_approval(tool, path, server.require_approval if server is not None else "always")
    described = _read_text(tool, "server_description", path)
    return Declaration(
        label=label,
        url=url,
        headers=headers,
        description=described if described is not None or server is None else server.description or None,
        allowed=_read_filter(tool.get("allowed_tools"), f"{path}.allowed_tools", lists=True) or ANY_TOOL,
        always=always,
        never=never,
        default=default,
    )


def show_declaration(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a declaration without what may be secret: the token, headers, and where on its host a URL leads."""
    shown = {key: value for key, value in tool.items() if key != "authorization"}
    shown["headers"] = None
    url = tool.get("server_url")
    if isinstance(url, str):
        parts = urlsplit(url)
        where = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
        shown["server_url"] = where if parts.path in {"", "/"} and not parts.query else f"{where}/{_REDACTED}"
    return {"allowed_tools": None, "require_approval": "always", "server_description": None, **shown}


def _read_url(tool: Mapping[str, Any], label: str, path: str, config: McpConfig) -> str | None:
    where = f"{path}.server_url"
    url = _read_text(tool, "server_url", path)
    if url is None:
        if label not in config.servers:
            raise _refuse(where, f"is missing, and no server '{label}' is configured", "missing_required_parameter")
        return None
    if not config.allow_request_servers:
        raise _refuse(where, "is not accepted: this gateway calls the servers of its configuration only")
    parts = _split_url(url)
    if parts is None or not parts.hostname:
        raise _refuse(where, f"must be an http or https URL of at most {_MAX_URL} characters, without credentials or #")
    try:
        egress = Egress(hosts=frozenset(config.allow_hosts), private=config.allow_private_addresses)
        egress.check(parts.hostname)
    except EgressRefused as refused:
        raise _refuse(where, str(refused)) from None
    return url


def _split_url(url: str) -> SplitResult | None:
    """Return the parts of a URL that may be called, or None."""
    if len(url) > _MAX_URL or not re.fullmatch(r"[!-~]+", url):
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    usable = parts.scheme in {"http", "https"} and "@" not in parts.netloc and "#" not in url
    return parts if usable else None


def _read_headers(tool: Mapping[str, Any], path: str) -> dict[str, str]:
    given = tool.get("headers")
    if given is None:
        given = {}
    where = f"{path}.headers"
    if not isinstance(given, dict) or len(given) > _MAX_HEADERS:
        raise _refuse(where, f"must be an object of at most {_MAX_HEADERS} headers")
    headers: dict[str, str] = {}
    for name, value in given.items():
        key = name.lower()
        try:
            parse_headers([name])
        except ValueError:
            raise _refuse(where, "has a name that is none, or that belongs to the connection") from None
        if key in OWN_HEADERS or key in headers:
            raise _refuse(where, "sets a header of the protocol itself, or one twice")
        headers[key] = _check_value(value, where)
    token = _read_text(tool, "authorization", path)
    if token is not None:
        if "authorization" in headers:
            raise _refuse(f"{path}.authorization", "is among the headers as well; send it once")
        bearer = token if token.lower().startswith("bearer ") else f"Bearer {token}"
        headers["authorization"] = _check_value(bearer, f"{path}.authorization")
    return headers


def _check_value(value: Any, where: str) -> str:
    if not isinstance(value, str) or len(value) > _MAX_HEADER or not _HEADER_VALUE.fullmatch(value):
        raise _refuse(where, f"must be text that a header can carry, at most {_MAX_HEADER} characters")
    return value


def _read_approval(tool: Mapping[str, Any], path: str, usual: str) -> tuple[ToolFilter, ToolFilter, bool]:
    where = f"{path}.require_approval"
    given = tool.get("require_approval")
    if given is None:
        given = usual
    if isinstance(given, str):
        if given not in {"always", "never"}:
            raise _refuse(where, 'must be "always", "never" or an object of the two')
        return NO_TOOL, NO_TOOL, given == "always"
    if not isinstance(given, dict) or not given.keys() <= {"always", "never"}:
        raise _refuse(where, 'must be "always", "never" or an object of the two')
    always = _read_filter(given.get("always"), f"{where}.always")
    never = _read_filter(given.get("never"), f"{where}.never")
    return always or NO_TOOL, never or NO_TOOL, True


def _read_filter(given: Any, where: str, *, lists: bool = False) -> ToolFilter | None:
    if given is None:
        return None
    if lists and isinstance(given, list):
        return ToolFilter(names=_read_names(given, where))
    if not isinstance(given, dict):
        kinds = "a list of names or an object" if lists else "an object"
        raise _refuse(where, f"must be {kinds}, but is {json_type(given)}", "invalid_type")
    names, read_only = given.get("tool_names"), given.get("read_only")
    if read_only is not None and not isinstance(read_only, bool):
        raise _refuse(f"{where}.read_only", "must be true or false", "invalid_type")
    return ToolFilter(
        names=None if names is None else _read_names(names, f"{where}.tool_names"), read_only=read_only or False
    )


def _read_names(given: Any, where: str) -> frozenset[str]:
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise _refuse(where, "must be a list of names", "invalid_type")
    if len(given) > _MAX_NAMES:
        raise _refuse(where, f"has more than {_MAX_NAMES} names", "array_above_max_length")
    return frozenset(given)


def _read_text(tool: Mapping[str, Any], key: str, path: str) -> str | None:
    value = tool.get(key)
    if value is not None and not isinstance(value, str):
        raise _refuse(f"{path}.{key}", f"must be a string, but is {json_type(value)}", "invalid_type")
    return value


def _refuse(param: str, what: str, code: str = "invalid_value") -> InvalidRequest:
    return InvalidRequest(f"'{param}' {what}.", code=code, param=param)
