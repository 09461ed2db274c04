"""A client and a real TLS listener, with an authority made for the purpose."""

import asyncio
import json
import ssl
from contextlib import AsyncExitStack

import pytest
import trustme

from gateway.config.certificates import CertificateFileError, trust_file
from gateway.protocol.errors import UpstreamUnavailable
from gateway.upstream.tls import open_context

STREAM = b"".join(b'event: a\ndata: {"n":%d}\n\n' % number for number in range(5000))


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture(scope="module")
def ca_file(authority, tmp_path_factory):
    """Return the path of the authority's certificate."""
    path = tmp_path_factory.mktemp("ca") / "ca.pem"
    authority.cert_pem.write_to_path(path)
    return str(path)


@pytest.fixture
async def listen(answer):
    """Return a factory of TLS servers whose certificate is for these names; they answer JSON or a long stream."""
    async with AsyncExitStack() as stack:

        async def serve(reader, writer):
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or 0)
                await reader.readexactly(length)
                if b"text/event-stream" in head:
                    writer.write(answer("200 OK", STREAM, "Content-Type: text/event-stream"))
                else:
                    writer.write(answer("200 OK", b'{"data":[{"id":"m"}]}', "Content-Type: application/json"))

        def accept(reader, writer):
            task = asyncio.create_task(serve(reader, writer))
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
            task.add_done_callback(lambda _: writer.close())
            stack.callback(task.cancel)

        async def build(authority: trustme.CA, *names: str) -> int:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            authority.issue_cert(*names).configure_cert(context)
            server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
            stack.callback(server.close)
            return server.sockets[0].getsockname()[1]

        yield build


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_the_right_authority(listen, connect, call, read_all, authority, ca_file, host):
    port = await listen(authority, "localhost", "127.0.0.1")
    upstream = await connect(f"https://{host}:{port}", ca_file=ca_file)
    for _ in range(2):
        exchange = await upstream.open(call())
        assert json.loads(await read_all(exchange)) == {"data": [{"id": "m"}]}
        exchange = await upstream.open(call(stream=True))
        assert exchange.is_event_stream
        assert await read_all(exchange) == STREAM
    assert len(upstream._pool._all) == 1
    assert (await upstream.probe()).healthy
    assert (await upstream.models())["data"] == [{"id": "m"}]


async def test_large_bodies_pass(listen, connect, call, read_all, authority, ca_file):
    port = await listen(authority, "localhost")
    upstream = await connect(f"https://localhost:{port}", ca_file=ca_file)
    assert await read_all(await upstream.open(call(b"z" * 5_000_000)))


async def test_another_authority(listen, connect, call, ca_file):
    port = await listen(trustme.CA(), "localhost")
    upstream = await connect(f"https://localhost:{port}", ca_file=ca_file)
    with pytest.raises(UpstreamUnavailable, match=r"certificate is not trusted: .*certificate") as caught:
        await upstream.open(call())
    assert caught.value.status == 502
    health = await upstream.probe()
    assert not health.healthy
    assert "not trusted" in health.detail


async def test_the_file_replaces_the_authorities_of_the_system(
    listen, connect, call, authority, ca_file, tmp_path, monkeypatch
):
    port = await listen(authority, "localhost")
    other = tmp_path / "other.pem"
    trustme.CA().cert_pem.write_to_path(other)
    monkeypatch.setenv("SSL_CERT_FILE", ca_file)
    exchange = await (await connect(f"https://localhost:{port}")).open(call())
    await exchange.close()
    upstream = await connect(f"https://localhost:{port}", ca_file=str(other))
    with pytest.raises(UpstreamUnavailable, match="not trusted"):
        await upstream.open(call())


@pytest.mark.parametrize(("host", "reason"), [("localhost", "hostname mismatch"), ("127.0.0.1", "ip address mismatch")])
async def test_a_certificate_of_another_host(listen, connect, call, authority, ca_file, host, reason):
    port = await listen(authority, "inference.example")
    upstream = await connect(f"https://{host}:{port}", ca_file=ca_file)
    with pytest.raises(UpstreamUnavailable, match=f"not trusted: {reason}") as caught:
        await upstream.open(call())
    assert host not in caught.value.message


@pytest.mark.parametrize("name", ["localhost", "inference.example"])
async def test_no_verification(listen, connect, call, read_all, name):
    port = await listen(trustme.CA(), name)
    upstream = await connect(f"https://localhost:{port}", tls_verify=False)
    assert await read_all(await upstream.open(call(stream=True))) == STREAM


def test_http_needs_no_context(ca_file):
    assert open_context("http://localhost", ca_file=ca_file) is None


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "No such file"),
        ("", "holds no certificates"),
        ("hello", "holds no certificates"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "holds no certificates"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path, content, reason):
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    for use in (lambda: trust_file(str(file)), lambda: open_context("https://a", ca_file=str(file))):
        with pytest.raises(CertificateFileError, match=reason) as caught:
            use()
        assert str(file) in str(caught.value)


@pytest.mark.parametrize(("name", "reason"), [("", "Is a directory"), ("\0", "it cannot be read")])
def test_a_name_that_is_no_file(tmp_path, name, reason):
    with pytest.raises(CertificateFileError, match=reason):
        trust_file(f"{tmp_path}/{name}")
