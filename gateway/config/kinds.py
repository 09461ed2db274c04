"""The kinds of settings: what a value may look like, how it is parsed and how the JSON Schema describes it."""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta

from gateway.config.addresses import (
    parse_bind,
    parse_database_url,
    parse_endpoint,
    parse_header,
    parse_headers,
    parse_host,
    parse_hosts,
    parse_http_url,
    parse_issuer,
    parse_networks,
    parse_origins,
)
from gateway.config.paths import parse_paths
from gateway.config.seal_keys import parse_seal_keys
from gateway.config.secret import Secret, SecretUrl
from gateway.config.units import (
    DURATION_PATTERN,
    SIZE_PATTERN,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
    parse_size_or_zero,
)

LIVE_KEYWORD: Final = "x-applies-on-reload"
"""Keyword of the JSON Schema that tells whether a reload applies a change of the key."""


def kind(
    name: str,
    parse: Callable[[Any], Any],
    *,
    render: Callable[[Any], Any] | None = None,
    schema: Mapping[str, Any] | None = None,
) -> Meta:
    """Describe a kind of value.

    Args:
        name: what the reference page calls it.
        parse: turns the written value into the value used; raises ValueError with the fix.
        render: turns a value back into what a person would write; None where they are the same.
        schema: additions to the JSON Schema.
    """
    return Meta(extra={"kind": name, "parse": parse, "render": render}, extra_json_schema=dict(schema or {}))


def doc(
    description: str,
    *,
    env: str | None = None,
    live: bool = False,
    waits_for: tuple[str, ...] = (),
    per_process: bool = False,
    extra_json_schema: Mapping[str, Any] | None = None,
    **constraints: Any,
) -> Meta:
    """Describe one setting.

    Args:
        description: for people; the config file, the JSON Schema and the reference page show it.
        env: a second environment variable besides the derived one.
        live: whether a reload applies a change; otherwise it needs a restart.
        waits_for: dotted paths of keys that need a restart; while a change of one waits for it, this key waits too.
        per_process: whether it bounds each process of several, and so allows all of them several times as much.
        extra_json_schema: additions to the JSON Schema.
        constraints: of `msgspec.Meta`, for example `ge`.
    """
    extra: dict[str, Any] = {"live": live, "waits_for": waits_for, "per_process": per_process}
    if per_process:
        description += " Counts in each process."
    if env:
        extra["env"] = env
    schema = {**(extra_json_schema or {}), LIVE_KEYWORD: live}
    return Meta(description=description, extra=extra, extra_json_schema=schema, **constraints)


_DURATION = kind("duration", parse_duration, render=format_duration, schema={"pattern": DURATION_PATTERN})

Size = Annotated[int, Meta(gt=0), kind("size", parse_size, render=format_size, schema={"pattern": SIZE_PATTERN})]
SizeOrZero = Annotated[
    int, Meta(ge=0), kind("size", parse_size_or_zero, render=format_size, schema={"pattern": SIZE_PATTERN})
]
Duration = Annotated[float, Meta(gt=0), _DURATION]
DurationOrZero = Annotated[float, Meta(ge=0), _DURATION]
Count = Annotated[int, Meta(ge=1)]
CountOrZero = Annotated[int, Meta(ge=0)]
Share = Annotated[float, Meta(ge=0, le=1), kind("number", lambda value: value)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Host = Annotated[str, kind("host", parse_host)]
Hosts = Annotated[tuple[str, ...], kind("array of hosts", parse_hosts)]
Origins = Annotated[tuple[str, ...], kind("array of origins", parse_origins)]
HeaderNames = Annotated[tuple[str, ...], kind("array of header names", parse_headers)]
HeaderName = Annotated[str, kind("header name", parse_header)]
Networks = Annotated[tuple[str, ...], kind("array of networks", parse_networks)]
Names = tuple[Annotated[str, Meta(min_length=1)], ...]
Paths = Annotated[tuple[str, ...], kind("array of paths", parse_paths)]
Bind = Annotated[str, kind("address", parse_bind)]
HttpUrl = Annotated[str, kind("http(s) URL", parse_http_url, schema={"format": "uri"})]
EndpointUrl = Annotated[str, kind("http(s) URL", parse_endpoint, schema={"format": "uri"})]
IssuerUrl = Annotated[str, kind("http(s) URL", parse_issuer, schema={"format": "uri"})]
SecretText = Annotated[Secret, kind("secret", Secret.parse)]
ApiKey = Annotated[Secret | None, kind("secret", Secret.parse)]
SealKeys = Annotated[Secret | None, kind("secret", parse_seal_keys)]
DatabaseUrl = Annotated[SecretUrl, kind("database URL", parse_database_url)]
FilePath = Annotated[str, Meta(min_length=1)]
