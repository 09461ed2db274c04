"""URLs, addresses and header names: what is accepted, and in which one spelling it is kept."""

import re
from ipaddress import ip_address, ip_network
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from gateway.config.secret import SecretUrl

_HOST_NAME = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^/?#@\s*]+")
_FRAMING_HEADERS: Final = frozenset(
    {
        "accept-encoding",
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_CREDENTIAL_HEADERS: Final = frozenset({"authorization", "cookie", "origin", "proxy-authorization"})


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("expected a string")  # noqa: TRY004 - every parser reports by ValueError
    return value


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError('expected an array of strings such as ["a", "b"]')  # noqa: TRY004 - as above
    return tuple(_text(item) for item in value)


def parse_host(value: Any) -> str:
    """Return a host name or IP address, IPv6 without brackets, lower-cased.

    Raises:
        ValueError: anything else, for example a host with a port.
    """
    host = _text(value)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    try:
        return str(ip_address(host))
    except ValueError:
        if not _HOST_NAME.fullmatch(host):
            raise ValueError("not a host; write a name or an IP address, without a port") from None
        return host.lower()


def parse_hosts(value: Any) -> tuple[str, ...]:
    """Return host names, each as `parse_host` does.

    Raises:
        ValueError: the value is no array of hosts, or a host holds a wildcard.
    """
    hosts = _texts(value)
    for host in hosts:
        if "*" in host:
            raise ValueError(f"{host!r} is no host; there are no wildcards, list every name that callers use")
    return tuple(parse_host(host) for host in hosts)


def split_bind(bind: str) -> tuple[str, int]:
    """Return host and port of `HOST:PORT` or `[IPv6]:PORT`.

    Raises:
        ValueError: there is no host, no port, or the port is beyond 65535.
    """
    host, separator, port = bind.rpartition(":")
    if not separator or not host or not re.fullmatch("[0-9]{1,5}", port) or int(port) > 65_535:
        raise ValueError('not an address; write HOST:PORT such as "127.0.0.1:9901" or "[::1]:9901"')
    if ":" in host and not host.startswith("["):
        raise ValueError('an IPv6 address needs brackets, such as "[::1]:9901"')
    return parse_host(host), int(port)


def parse_bind(value: Any) -> str:
    """Return the address unchanged after `split_bind` accepted it.

    Raises:
        ValueError: as `split_bind`.
    """
    split_bind(_text(value))
    return _text(value)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the host; a name other than `localhost` counts as reachable."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_wildcard(host: str) -> bool:
    """Whether the host means every interface."""
    return host in {"0.0.0.0", "::"}  # noqa: S104 - compared, not bound


def parse_http_url(value: Any) -> str:
    """Return the base URL of a server without a trailing `/v1` or slash.

    Raises:
        ValueError: no http(s) URL, no host, a bad port, or credentials, a query or a fragment in it.
    """
    url = _text(value)
    if "@" in _split_http_url(url).netloc:
        raise ValueError("holds credentials; put the key into api_key or api_key_file")
    return url.rstrip("/").removesuffix("/v1").rstrip("/")


def parse_endpoint(value: Any) -> str:
    """Return the URL of one endpoint as it was written.

    Raises:
        ValueError: no http(s) URL, no host, a bad port, or credentials, a query or a fragment in it.
    """
    url = _text(value)
    if "@" in _split_http_url(url).netloc:
        raise ValueError("holds credentials; put them into authorization_file or header_files")
    return url


def parse_issuer(value: Any) -> str:
    """Return the URL of an issuer of tokens as it was written, for it is compared letter by letter.

    Raises:
        ValueError: no http(s) URL, no host, a bad port, credentials, a query or a fragment in it, or http to another
            machine.
    """
    url = _text(value)
    if "@" in _split_http_url(url).netloc:
        raise ValueError("holds credentials; an issuer has none")
    if not is_confidential(url):
        raise ValueError("is not https: whoever is on the way could make keys, and with them tokens")
    return url


def is_confidential(url: str) -> bool:
    """Whether what an http(s) URL names is reached by TLS, or without leaving this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname or ""))


def _split_http_url(url: str) -> SplitResult:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or not re.fullmatch(r"[!-~]+", url):
        raise ValueError("not a URL; write http://HOST:PORT or https://HOST")
    if parts.query or parts.fragment:
        raise ValueError("holds a query or a fragment; write only scheme, host, port and path")
    try:
        _ = parts.port
    except ValueError:
        raise ValueError("holds a port that is not between 0 and 65535") from None
    return parts


def parse_database_url(value: Any) -> SecretUrl:
    """Return the URL of a database.

    Raises:
        ValueError: anything but `sqlite:///PATH` or `postgresql://…`.
    """
    url = _text(value)
    scheme, separator, rest = url.partition("://")
    if not separator or scheme not in {"sqlite", "postgresql"} or not url.isprintable():
        raise ValueError(
            "not a database URL; write sqlite:///PATH or postgresql://USER@HOST/DATABASE"
            + _suggest_scheme(scheme, is_url=bool(separator))
        )
    if scheme == "sqlite" and (not rest.startswith("/") or rest == "/" or "?" in rest):
        raise ValueError("names one file and nothing else; write sqlite:///PATH, with four slashes if it is absolute")
    if scheme == "sqlite" and ":memory:" in rest:
        raise ValueError("an in-memory database cannot be shared by the writer and the readers; name a file")
    if scheme == "postgresql" and not rest:
        raise ValueError("names no server; write postgresql://USER@HOST/DATABASE")
    return SecretUrl(url)


def _suggest_scheme(scheme: str, *, is_url: bool) -> str:
    """Return what may have been meant, without a word of the text: it may hold a password anywhere."""
    if not is_url and ":" not in scheme:
        return " (did you mean a file? put sqlite:/// in front of its path)"
    dialect = scheme.partition("+")[0]
    meant = {"postgres": "postgresql", "postgresql": "postgresql", "sqlite": "sqlite"}.get(dialect)
    return f" (did you mean {meant}://…?)" if is_url and meant and meant != scheme else ""


def parse_origins(value: Any) -> tuple[str, ...]:
    """Return web origins, lower-cased.

    Raises:
        ValueError: an entry is no `scheme://host[:port]`; wildcards are refused.
    """
    origins = _texts(value)
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise ValueError(f"{origin!r} is no origin; write scheme://host[:port] without a path, slash or wildcard")
    return tuple(origin.lower() for origin in origins)


def parse_headers(value: Any) -> tuple[str, ...]:
    """Return header names, lower-cased.

    Raises:
        ValueError: an entry is no header name, or the connection itself owns the header.
    """
    names = tuple(_header(name) for name in _texts(value))
    for name in names:
        if name in _FRAMING_HEADERS:
            raise ValueError(f"{name!r} belongs to one connection and cannot be forwarded")
    return names


def parse_header(value: Any) -> str:
    """Return the name of a header that says something of the caller, lower-cased.

    Raises:
        ValueError: it is no header name, or the name of a header with another meaning.
    """
    name = _header(_text(value))
    if name in _FRAMING_HEADERS | _CREDENTIAL_HEADERS:
        raise ValueError(f"{name!r} has a meaning of its own; choose another header, such as x-forwarded-user")
    return name


def parse_networks(value: Any) -> tuple[str, ...]:
    """Return addresses and networks as networks, each in its one spelling, such as `10.1.0.0/16`.

    Raises:
        ValueError: an entry is neither, has bits set behind its prefix, or holds every address.
    """
    return tuple(_network(text) for text in _texts(value))


def _header(text: str) -> str:
    if not _HEADER_NAME.fullmatch(text):
        raise ValueError(f"{text!r} is no header name")
    return text.lower()


def _network(text: str) -> str:
    try:
        network = ip_network(text)
    except ValueError:
        raise ValueError(f"{text!r} is no address or network; write 10.0.0.7, 10.1.0.0/16 or fd00::/8") from None
    if not network.prefixlen:
        raise ValueError(f"{text!r} holds every address; name the proxies alone")
    return str(network)
