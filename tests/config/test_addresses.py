"""URLs, addresses and header names: one accepted spelling each."""

import pytest

from gateway.config import addresses


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://127.0.0.1:8000/", "http://127.0.0.1:8000"),
        ("https://host/v1", "https://host"),
        ("https://host/v1/", "https://host"),
        ("https://host/team/v1", "https://host/team"),
        ("http://[::1]:8000/v1", "http://[::1]:8000"),
        ("http://host/v11", "http://host/v11"),
    ],
)
def test_an_upstream_url_is_kept_without_v1(written, kept):
    assert addresses.parse_http_url(written) == kept


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("127.0.0.1:8000", "not a URL"),
        ("ftp://host", "not a URL"),
        ("http://", "not a URL"),
        ("http://ho st", "not a URL"),
        ("http://host:99999", "port"),
        ("http://user:pw@host", "credentials"),
        ("http://user@host", "credentials"),
        ("http://host?x=1", "query"),
        ("http://host#x", "fragment"),
        (8000, "string"),
    ],
)
def test_what_is_no_upstream_url_is_refused(url, reason):
    with pytest.raises(ValueError, match=reason):
        addresses.parse_http_url(url)


@pytest.mark.parametrize(
    ("bind", "host", "port"),
    [("127.0.0.1:9901", "127.0.0.1", 9901), ("[::1]:0", "::1", 0), ("LocalHost:65535", "localhost", 65535)],
)
def test_a_bind_address_splits(bind, host, port):
    assert addresses.split_bind(bind) == (host, port)
    assert addresses.parse_bind(bind) == bind


@pytest.mark.parametrize(
    "bind", ["", "9901", ":9901", "host", "host:", "host:x", "host:65536", "::1:9901", "a b:1", 9901]
)
def test_what_is_no_bind_address_is_refused(bind):
    with pytest.raises(ValueError, match=r"address|brackets|host|string"):
        addresses.parse_bind(bind)


@pytest.mark.parametrize(
    ("written", "kept"),
    [("0.0.0.0", "0.0.0.0"), ("[::1]", "::1"), ("::1", "::1"), ("Gateway.Example", "gateway.example")],
)
def test_a_host_is_kept_without_brackets_in_lower_case(written, kept):
    assert addresses.parse_host(written) == kept


@pytest.mark.parametrize("host", ["", "a:1", "http://a", "a/b", "a b", "-a", "*", 1])
def test_what_is_no_host_is_refused(host):
    with pytest.raises(ValueError, match=r"host|string"):
        addresses.parse_host(host)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        *[("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True)],
        *[("0.0.0.0", False), ("10.0.0.1", False), ("::", False), ("gateway", False)],
    ],
)
def test_loopback_is_recognised(host, loopback):
    assert addresses.is_loopback(host) is loopback


@pytest.mark.parametrize(
    "url", ["sqlite:///r.db", "sqlite:////var/lib/r.db", "postgresql://u:p@h/d", "postgresql:///d"]
)
def test_a_database_url_is_kept(url):
    assert addresses.parse_database_url(url).reveal() == url


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("sqlite://", "one file"),
        ("sqlite:///", "one file"),
        ("sqlite://r.db", "one file"),
        ("sqlite:///r.db?mode=ro", "one file"),
        ("sqlite:///:memory:", "in-memory"),
        ("postgres://h/d", r"\(did you mean postgresql://…\?\)$"),
        ("postgresql+psycopg://h/d", r"\(did you mean postgresql://…\?\)$"),
        ("sqlite+aiosqlite:///r.db", r"\(did you mean sqlite://…\?\)$"),
        ("r.db", r"put sqlite:/// in front of its path\)$"),
        ("./data/r.db", r"put sqlite:/// in front of its path\)$"),
        ("mysql://h/d", "not a database URL"),
        ("postgresql://", "no server"),
        ("postgresql://h/d\n", "DATABASE$"),
        ("u:hunter2@h/d", "DATABASE$"),
        (1, "string"),
    ],
)
def test_what_is_no_database_url_is_refused(url, reason):
    with pytest.raises(ValueError, match=reason):
        addresses.parse_database_url(url)


@pytest.mark.parametrize("host", ["*", "*.example", "gateway.*"])
def test_hosts_have_no_wildcards(host):
    with pytest.raises(ValueError, match="no wildcards"):
        addresses.parse_hosts(["gateway", host])


def test_origins_and_headers_are_lower_cased():
    assert addresses.parse_origins(["HTTPS://Chat.example:8443"]) == ("https://chat.example:8443",)
    assert addresses.parse_headers(["X-Team"]) == ("x-team",)


@pytest.mark.parametrize("origin", ["*", "chat.example", "https://chat.example/", "https://*.example", "https://"])
def test_what_is_no_origin_is_refused(origin):
    with pytest.raises(ValueError, match="origin"):
        addresses.parse_origins([origin])


@pytest.mark.parametrize("name", ["", "a b", "x:", "Host", "Content-Length", "transfer-encoding"])
def test_what_cannot_be_forwarded_is_refused(name):
    with pytest.raises(ValueError, match=r"header|connection"):
        addresses.parse_headers([name])


@pytest.mark.parametrize("parse", [addresses.parse_hosts, addresses.parse_origins, addresses.parse_headers])
@pytest.mark.parametrize("value", ["text", {"a": 1}, [1]])
def test_lists_hold_strings(parse, value):
    with pytest.raises(ValueError, match="string"):
        parse(value)


@pytest.mark.parametrize(
    "issuer", ["https://id.example", "https://id.example/realms/a/", "http://127.0.0.1:8080", "http://localhost/v1"]
)
def test_an_issuer_is_kept_letter_by_letter(issuer):
    assert addresses.parse_issuer(issuer) == issuer


@pytest.mark.parametrize(
    ("issuer", "reason"),
    [
        ("id.example", "not a URL"),
        ("http://id.example", "not https"),
        ("http://10.0.0.1", "not https"),
        ("https://user:pw@id.example", "credentials"),
        ("https://id.example?x=1", "query"),
        ("https://id.example#x", "fragment"),
        ("https://id.example:99999", "port"),
        (1, "string"),
    ],
)
def test_what_is_no_issuer_is_refused(issuer, reason):
    with pytest.raises(ValueError, match=reason):
        addresses.parse_issuer(issuer)


def test_a_header_that_names_callers():
    assert addresses.parse_header("X-Forwarded-User") == "x-forwarded-user"
    for name in ("", "a b", "Host", "Authorization", "cookie", "Origin", "content-type"):
        with pytest.raises(ValueError, match=r"header"):
            addresses.parse_header(name)


def test_networks_have_one_spelling():
    written = ["10.0.0.7", "10.1.0.0/255.255.0.0", "FD00:0::/8"]
    assert addresses.parse_networks(written) == ("10.0.0.7/32", "10.1.0.0/16", "fd00::/8")


@pytest.mark.parametrize(
    ("network", "message"),
    [
        ("proxy.example", "no address or network"),
        ("10.0.0.1/8", "no address or network"),
        ("10.0.0.0/33", "no address or network"),
        ("0.0.0.0/0", "holds every address"),
        ("::/0", "holds every address"),
    ],
)
def test_what_is_no_network_of_proxies(network, message):
    with pytest.raises(ValueError, match=message):
        addresses.parse_networks(["10.0.0.0/8", network])
