"""Fetching an issuer's documents from real sockets, within bounds."""

import asyncio
import json
import ssl
from contextlib import suppress

import pytest
import trustme
from harness.issuer import DISCOVERY, ServedIssuer

from gateway.config.schema import OidcConfig
from gateway.transport.oidc.documents import DocumentClient, DocumentError


@pytest.fixture
async def serve():
    """Return a function that serves one raw answer and tells its URL and the requests."""
    servers, tasks = [], []

    async def start(answer, context=None):
        requests = []

        async def accept(reader, writer):
            tasks.append(asyncio.current_task())
            requests.append(await reader.readuntil(b"\r\n\r\n"))
            try:
                writer.write(answer)
                await reader.read()
            finally:
                writer.close()
                with suppress(OSError):
                    await writer.wait_closed()

        server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=context)
        servers.append(server)
        return f"127.0.0.1:{server.sockets[0].getsockname()[1]}", requests

    yield start
    for server in servers:
        server.close()
    await asyncio.gather(*tasks, return_exceptions=True)


def answer(body, status="200 OK", *headers):
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


async def test_a_document_arrives(serve):
    with ServedIssuer() as issuer:
        document = await DocumentClient(OidcConfig()).get(issuer.url + DISCOVERY)
    assert document == issuer.document(DISCOVERY)


async def test_the_request_names_the_host_and_keeps_the_query(serve):
    host, requests = await serve(answer(b'{"a":1}'))
    assert await DocumentClient(OidcConfig()).get(f"http://{host}/keys?v=2") == {"a": 1}
    assert requests[0].startswith(b"GET /keys?v=2 HTTP/1.1\r\n")
    assert f"Host: {host}\r\n".encode() in requests[0]
    assert b"authorization" not in requests[0].lower()


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (answer(b"", "302 Found", "Location: http://127.0.0.1:1/elsewhere"), "302"),
        (answer(b"{}", "500 Oops"), "500"),
        (answer(b"[]"), "no JSON object"),
        (answer(b"<html>"), "no JSON object"),
        (answer(b"\x1f\x8b", "200 OK", "Content-Encoding: gzip"), "no JSON object"),
        (answer(b'{"a":"' + b"x" * 2000 + b'"}'), "too large"),
        (answer(b"", "200 OK", "X: " + "x" * 2000), "too large"),
        (b"SSH-2.0-x\r\n\r\n", "no whole answer"),
    ],
    ids=range(8),
)
async def test_an_answer_that_is_no_document(serve, raw, reason):
    host, requests = await serve(raw)
    with pytest.raises(DocumentError, match=reason):
        await DocumentClient(OidcConfig(max_document_bytes=1024)).get(f"http://{host}/")
    assert len(requests) == 1


async def test_an_answer_that_does_not_come(serve):
    host, _ = await serve(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
    with pytest.raises(DocumentError, match=r"within 0\.05 seconds"):
        await DocumentClient(OidcConfig(fetch_timeout_seconds=0.05)).get(f"http://{host}/")


async def test_a_host_that_is_not_there():
    with pytest.raises(DocumentError, match=r"[Cc]onnect"):
        await DocumentClient(OidcConfig()).get("http://127.0.0.1:1/")


async def test_the_authority_that_is_trusted(serve, tmp_path):
    authority, stranger = trustme.CA(), trustme.CA()
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(ca_file)
    client = DocumentClient(OidcConfig(ca_file=str(ca_file)))
    for made_by in (authority, stranger):
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        made_by.issue_cert("127.0.0.1").configure_cert(context)
        host, _ = await serve(answer(json.dumps({"a": 1}).encode()), context)
        if made_by is authority:
            assert await client.get(f"https://{host}/") == {"a": 1}
        else:
            with pytest.raises(DocumentError, match="certificate"):
                await client.get(f"https://{host}/")
