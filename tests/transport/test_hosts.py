import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.protocol.errors import Forbidden
from gateway.transport.hosts import HostPolicy


def refusal(policy, host=b"localhost", origin=None):
    try:
        policy.check(host, origin)
    except Forbidden as error:
        return error.code
    return None


@pytest.mark.parametrize(
    "host", [b"localhost", b"LocalHost:9000", b"127.0.0.1", b"127.0.0.1:9000", b"[::1]", b"[::1]:9000"]
)
def test_loopback_names_are_hosts(host):
    assert refusal(HostPolicy("127.0.0.1"), host) is None


@pytest.mark.checklist(6)
@pytest.mark.parametrize(
    "host",
    [
        None,
        b"",
        b"evil.example",
        b"evil.example:9000",
        b"localhost.evil.example",
        b"127.0.0.1.evil.example",
        b"evil.example:127.0.0.1",
        b"10.0.0.5",
        b"user@localhost",
    ],
)
def test_other_hosts_are_refused(host):
    assert refusal(HostPolicy("127.0.0.1"), host) == "host_not_allowed"


def test_listed_and_bound_hosts_pass():
    policy = HostPolicy("10.0.0.5", ["gateway.example"])
    assert refusal(policy, b"10.0.0.5:9000") is None
    assert refusal(policy, b"Gateway.Example:443") is None
    assert refusal(policy, b"localhost") is None
    assert refusal(policy, b"evil.example") == "host_not_allowed"


def test_a_host_that_has_passed_is_judged_anew_by_other_lists():
    policy = HostPolicy("127.0.0.1", ["gateway.example"])
    assert [refusal(policy, host) for host in (b"gateway.example", b"evil.example", b"gateway.example")] == [
        None,
        "host_not_allowed",
        None,
    ]
    policy.reconfigure(["other.example"], [])
    assert refusal(policy, b"gateway.example") == "host_not_allowed"


@pytest.mark.parametrize("host", [b"10.42.0.17:9901", b"10.42.0.17", b"[fd00::17]:9901"])
def test_addresses_pass_off_loopback_because_no_page_can_rebind_them(host):
    assert refusal(HostPolicy("0.0.0.0", ["gateway.example"]), host) is None
    assert refusal(HostPolicy("127.0.0.1", ["gateway.example"]), host) == "host_not_allowed"


@pytest.mark.checklist(6)
@pytest.mark.parametrize("host", [b"10.42.0.17.evil.example", b"evil.example:10.42.0.17", b"10.42.0", b"\xff", b"[]"])
def test_what_only_looks_like_an_address_is_refused_off_loopback(host):
    assert refusal(HostPolicy("0.0.0.0", ["gateway.example"]), host) == "host_not_allowed"


@pytest.mark.parametrize(
    ("bound", "listed", "any_host"),
    [
        ("127.0.0.1", [], False),
        ("::1", [], False),
        ("localhost", [], False),
        ("0.0.0.0", [], True),
        ("10.0.0.5", [], True),
        ("0.0.0.0", ["gateway.example"], False),
    ],
)
def test_any_host_passes_only_off_loopback_without_a_list(bound, listed, any_host):
    policy = HostPolicy(bound, listed)
    assert policy.accepts_any_host is any_host
    assert (refusal(policy, b"evil.example") is None) is any_host


@pytest.mark.parametrize(
    "origin", [b"http://localhost:3000", b"http://127.0.0.1", b"https://[::1]:8443", b"HTTP://LOCALHOST"]
)
def test_loopback_origins_pass(origin):
    assert refusal(HostPolicy("127.0.0.1"), origin=origin) is None


def test_same_origin_and_listed_origins_pass():
    policy = HostPolicy("10.0.0.5", ["gateway.example"], ["https://chat.example"])
    assert refusal(policy, b"gateway.example:9000", b"http://Gateway.example:9000") is None
    assert refusal(policy, b"gateway.example", b"https://chat.example") is None
    assert refusal(policy, b"gateway.example", b"https://chat.example:8443") == "origin_not_allowed"
    assert refusal(policy, b"gateway.example", b"http://chat.example") == "origin_not_allowed"


@pytest.mark.checklist(6)
@pytest.mark.parametrize(
    "origin", [b"null", b"", b"http://evil.example", b"http://localhost.evil.example", b"http://evil@localhost"]
)
def test_other_origins_are_refused(origin):
    assert refusal(HostPolicy("127.0.0.1"), origin=origin) == "origin_not_allowed"


@given(st.binary(max_size=40))
def test_only_listed_names_pass_whatever_bytes_arrive(host):
    passed = refusal(HostPolicy("127.0.0.1"), host) is None
    name = host.lower()
    assert not passed or name.startswith((b"localhost", b"127.0.0.1", b"::1", b"[localhost", b"[127.0.0.1", b"[::1"))
