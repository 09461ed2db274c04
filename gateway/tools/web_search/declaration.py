"""What a request declares of a web search."""

import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from gateway.protocol.errors import InvalidRequest
from gateway.tools.web_search.provider import Depth

_TYPE = re.compile(r"web_search(_preview)?(_\d{4}_\d{2}_\d{2})?")
_DOMAIN = re.compile(r"(?!.{254})[a-z0-9](?:[a-z0-9-]{0,62}\.)*[a-z0-9-]{1,63}")
_MOST_DOMAINS = 100
_LONGEST_PLACE = 200
_PLACES = ("city", "region", "country", "timezone")
_DEPTHS = ("low", "medium", "high")


class Declaration(Struct, frozen=True, kw_only=True):
    """A web search as a request wants it.

    Attributes:
        depth: `search_context_size`.
        allowed: domains that results must be of, subdomains included; empty for all.
        blocked: domains that results must not be of.
        place: `user_location`, by its members.
    """

    depth: Depth = "medium"
    allowed: Sequence[str] = ()
    blocked: Sequence[str] = ()
    place: Mapping[str, str] = {}

    def permits(self, url: str) -> bool:
        """Tell whether a result may be of this page."""
        try:
            host = (urlsplit(url).hostname or "").removesuffix(".")
        except ValueError:
            return False
        if self.allowed and not _is_within(host, self.allowed):
            return False
        return not _is_within(host, self.blocked)


def is_web_search(kind: str) -> bool:
    """Tell whether a declared type is a web search: current, preview or of a date."""
    return _TYPE.fullmatch(kind) is not None


def read_declaration(tool: Mapping[str, Any], path: str) -> Declaration:
    """Return what a tool declares; members that are not known are left to those who know them.

    Args:
        tool: the declaration.
        path: of the tool in the request, such as `tools[2]`.

    Raises:
        InvalidRequest: names the member at fault.
    """
    depth = tool.get("search_context_size")
    if depth not in (None, *_DEPTHS):
        raise _refuse(f"{path}.search_context_size", "must be low, medium or high", code="invalid_value")
    if not isinstance(tool.get("external_web_access"), bool | None):
        raise _refuse(f"{path}.external_web_access", "must be true or false")
    filters = tool.get("filters")
    if not isinstance(filters, dict | None):
        raise _refuse(f"{path}.filters", "must be an object")
    filters = filters or {}
    return Declaration(
        depth=depth or "medium",
        allowed=_read_domains(filters.get("allowed_domains"), f"{path}.filters.allowed_domains"),
        blocked=_read_domains(filters.get("blocked_domains"), f"{path}.filters.blocked_domains"),
        place=_read_place(tool.get("user_location"), f"{path}.user_location"),
    )


def _read_domains(given: Any, path: str) -> Sequence[str]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise _refuse(path, "must be a list of domains")
    if len(given) > _MOST_DOMAINS:
        raise _refuse(path, f"has more than {_MOST_DOMAINS} entries", code="array_above_max_length")
    domains: dict[str, None] = {}
    for index, domain in enumerate(given):
        if not isinstance(domain, str):
            raise _refuse(f"{path}[{index}]", "must be a string")
        if not _DOMAIN.fullmatch(domain.lower()):
            raise _refuse(f"{path}[{index}]", "must be a bare domain such as example.com", code="invalid_value")
        domains[domain.lower()] = None
    return tuple(domains)


def _read_place(given: Any, path: str) -> Mapping[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise _refuse(path, "must be an object")
    if given.get("type", "approximate") != "approximate":
        raise _refuse(f"{path}.type", 'must be "approximate"', code="invalid_value")
    for name in _PLACES:
        value = given.get(name)
        if not isinstance(value, str | None):
            raise _refuse(f"{path}.{name}", "must be a string")
        if value is not None and (len(value) > _LONGEST_PLACE or not value.isprintable()):
            raise _refuse(
                f"{path}.{name}", f"must be one line of at most {_LONGEST_PLACE} characters", code="invalid_value"
            )
    return {name: given[name] for name in _PLACES if given.get(name)}


def _is_within(host: str, domains: Sequence[str]) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def _refuse(path: str, what: str, code: str = "invalid_type") -> InvalidRequest:
    return InvalidRequest(f"'{path}' {what}.", code=code, param=path)
