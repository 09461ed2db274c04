"""The keys of MCP servers, whose tools the gateway runs for models."""

from collections.abc import Mapping
from typing import Annotated, Literal

from gateway.config.kinds import (
    ApiKey,
    Count,
    CountOrZero,
    Duration,
    DurationOrZero,
    EndpointUrl,
    FilePath,
    Hosts,
    Names,
    SecretText,
    Size,
    doc,
)
from gateway.config.schema.section import Section
from gateway.config.units import MIB


class McpServerConfig(Section, frozen=True, kw_only=True):
    """One MCP server that requests may name by its label: at a URL, or a program that the gateway starts."""

    url: Annotated[
        EndpointUrl | None, doc("Its streamable HTTP endpoint, such as https://docs.example.com/mcp; or set command.")
    ] = None
    authorization: Annotated[ApiKey, doc("Token sent to url as a bearer token.")] = None
    authorization_file: Annotated[
        FilePath | None,
        doc("File that holds authorization, in the place of it; one trailing line break is dropped."),
    ] = None
    headers: Annotated[Mapping[str, SecretText], doc("Further headers sent to url; their values are never shown.")] = {}
    header_files: Annotated[
        Mapping[str, FilePath], doc("Such headers whose values are in files; one trailing line break is dropped.")
    ] = {}
    ca_file: Annotated[
        FilePath | None,
        doc("PEM file of the certificate authorities trusted for an https url, in the place of the system's."),
    ] = None
    command: Annotated[
        FilePath | None,
        doc(
            "Program to start, which speaks MCP over its standard input and output; looked up in PATH. It is one "
            "process for all callers, started when it is first needed. Counts in each process."
        ),
    ] = None
    args: Annotated[tuple[str, ...], doc("Arguments of command; they are shown, so secrets belong into env.")] = ()
    env: Annotated[Mapping[str, SecretText], doc("Variables set for command; their values are never shown.")] = {}
    env_pass: Annotated[
        Names, doc("Variables of the gateway that command gets besides PATH, HOME, LANG and TMPDIR.")
    ] = ()
    cwd: Annotated[FilePath | None, doc("Folder in which command is started; none is the gateway's own.")] = None
    allowed_tools: Annotated[
        Names, doc("Tools that requests may use, whatever they ask for; empty means every tool of the server.")
    ] = ()
    require_approval: Annotated[
        Literal["always", "never"], doc("Whether the client is asked before a call where the request does not say so.")
    ] = "always"
    description: Annotated[str, doc("What it is for; models read it where the request has no server_description.")] = ""


class McpConfig(Section, frozen=True, kw_only=True):
    """Tools of MCP servers. The limits are per request unless they say otherwise."""

    allow_request_servers: Annotated[
        bool, doc("Whether requests may name servers by server_url, besides those configured here.")
    ] = True
    allow_hosts: Annotated[
        Hosts, doc("Hosts that a request's server_url may name; empty allows every host with a public address.")
    ] = ()
    allow_private_addresses: Annotated[
        bool,
        doc(
            "Whether a request's server_url may lead to loopback, private and link-local addresses, which only the "
            "gateway's own network reaches. Configured servers always may."
        ),
    ] = False
    max_servers: Annotated[Count, doc("Most servers of one request.")] = 64
    max_tools: Annotated[Count, doc("Most tools that all servers of one request may offer together.")] = 128
    max_discovery_bytes: Annotated[
        Size, doc("Most bytes that listing the tools of all servers of one request may take.")
    ] = MIB
    max_message_bytes: Annotated[Size, doc("Largest message of a server, and largest event of its streams.")] = MIB
    max_stream_bytes: Annotated[
        Size, doc("Most bytes of one stream that answers one call: progress, log messages and the result.")
    ] = 8 * MIB
    connect_timeout_seconds: Annotated[
        Duration, doc("Limit for reaching a server and agreeing on the protocol; for a program, from its start.")
    ] = 10.0
    list_timeout_seconds: Annotated[Duration, doc("Limit for listing all tools of one server.")] = 30.0
    call_timeout_seconds: Annotated[
        Duration, doc("Limit for one call of a tool; progress that a server reports does not extend it.")
    ] = 60.0
    max_idle_sessions: Annotated[
        CountOrZero,
        doc("Sessions with configured servers kept open while nobody uses them.", per_process=True),
    ] = 64
    session_idle_seconds: Annotated[Duration, doc("How long such a session is kept.")] = 300.0
    session_check_seconds: Annotated[
        DurationOrZero, doc("A session that was idle for longer is asked for a sign of life before it is used again.")
    ] = 30.0
    restart_backoff_seconds: Annotated[
        Duration,
        doc(
            "Longest wait before a program that did not start, or ended, is started again; the first is a second, and "
            "each is twice the one before. Calls fail meanwhile."
        ),
    ] = 30.0
    servers: Annotated[
        Mapping[str, McpServerConfig],
        doc("Servers that requests name by label, each with its keys below [mcp.servers.LABEL]."),
    ] = {}
