"""What makes an MCP server of the configuration unusable."""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Final

from gateway.config.addresses import parse_headers
from gateway.config.certificates import CertificateFileError, trust_file
from gateway.config.findings import KeyPath
from gateway.config.schema import McpConfig, McpServerConfig
from gateway.config.tree import env_label

LABEL: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""What a server may be called, here and in requests."""

OWN_HEADERS: Final = frozenset({"accept", "last-event-id", "mcp-protocol-version", "mcp-session-id"})
"""Headers of the protocol itself, which nobody else sets."""

_ONLY_URL: Final = ("authorization", "authorization_file", "headers", "header_files", "ca_file")
_ONLY_COMMAND: Final = ("args", "env", "env_pass", "cwd")

Problem = tuple[str, *tuple[KeyPath, ...]]


def review_servers(config: McpConfig) -> Iterator[Problem]:
    """Yield each problem with the keys involved, first the one that has it."""
    for label, server in config.servers.items():
        path = ("mcp", "servers", label)
        if not LABEL.fullmatch(label):
            yield f"{label!r} cannot be a label; write up to 64 letters, digits, _ and -", path
        yield from _review(path, server)
    for one, other in combinations(config.servers, 2):
        if env_label(one) == env_label(other):
            yield f"environment variables cannot tell it from {one!r}; rename one of them", ("mcp", "servers", other)


def read_headers(server: McpServerConfig) -> dict[str, str]:
    """Return the headers of a server, those in files included, names in lower case.

    Raises:
        OSError: a file cannot be read.
        ValueError: a value is no text in one line.
    """
    headers = {name.lower(): secret.reveal() for name, secret in server.headers.items()}
    headers |= {name.lower(): _read_line(Path(file)) for name, file in server.header_files.items()}
    if server.authorization is not None:
        headers["authorization"] = f"Bearer {server.authorization.reveal()}"
    return headers


def _review(path: KeyPath, server: McpServerConfig) -> Iterator[Problem]:
    if (server.url is None) == (server.command is None):
        yield "needs a url or a command, and not both", path, (*path, "url"), (*path, "command")
        return
    unused, kind = (_ONLY_URL, "url") if server.url is None else (_ONLY_COMMAND, "command")
    for name in unused:
        if getattr(server, name):
            yield f"is for a server with a {kind}", (*path, name)
    if server.url is None:
        return
    if server.ca_file is not None:
        try:
            trust_file(server.ca_file)
        except CertificateFileError as error:
            yield str(error), (*path, "ca_file")
    yield from _review_headers(path, server)


def _review_headers(path: KeyPath, server: McpServerConfig) -> Iterator[Problem]:
    for key, names in (("headers", list(server.headers)), ("header_files", list(server.header_files))):
        for name in names:
            try:
                parse_headers([name])
            except ValueError as error:
                yield str(error), (*path, key, name)
            if name.lower() in OWN_HEADERS:
                yield "is set by the protocol itself", (*path, key, name)
            if name.lower() == "authorization" and server.authorization is not None:
                yield "authorization is set as well; keep one of the two", (*path, key, name)
    try:
        if any(max(value, default="") > "\xff" for value in read_headers(server).values()):
            yield "a header has a character that no header can carry; write ASCII", (*path, "headers")
    except OSError as error:
        yield f"{error.filename}: {error.strerror or 'it cannot be read'}", (*path, "header_files")
    except ValueError as error:
        yield str(error), (*path, "header_files")


def _read_line(file: Path) -> str:
    text = file.read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    if not text or not text.isprintable():
        raise ValueError(f"{file}: is empty, or holds a line break or another control character")
    return text
