"""Calls that the client passes on as they are."""

import pytest

from gateway.ports import RelayedCall
from gateway.protocol.errors import Unavailable, UpstreamError, UpstreamRefused, UpstreamUnavailable
from gateway.upstream.client import HttpUpstream
from gateway.upstream.settings import UpstreamSettings


def relayed(**changed):
    return RelayedCall(**{"target": "/v1/x?a=1", "body": b"body", **changed})


@pytest.fixture
async def serve(raw_server):
    """Return a function that starts a server with one answer for every request."""

    async def start(raw):
        async def answer(server, reader, writer):
            while True:
                await server.read_request(reader)
                writer.write(raw)

        return await raw_server(answer)

    return start


async def test_status_headers_and_body_come_back_as_they_were_sent(serve, connect, answer, read_all):
    server = await serve(answer("418 Teapot", b"\x00\xff", "X-A: 1", "x-a: 2", "Set-Cookie: a", "set-cookie: b"))
    upstream = await connect(server.url)
    for _ in range(2):
        back = await upstream.relay(relayed())
        assert back.status == 418
        assert list(back.headers) == [
            *((b"Content-Length", b"2"), (b"X-A", b"1"), (b"x-a", b"2")),
            *((b"Set-Cookie", b"a"), (b"set-cookie", b"b")),
        ]
        assert await read_all(back) == b"\x00\xff"
    assert server.connections == 1


async def test_interim_headers_are_not_the_answers(serve, connect, answer):
    server = await serve(b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + answer("200 OK", b"{}"))
    back = await (await connect(server.url)).relay(relayed())
    assert list(back.headers) == [(b"Content-Length", b"2")]
    await back.close()


async def test_the_request_below_the_servers_base(serve, connect, answer):
    server = await serve(answer("200 OK", b"{}"))
    upstream = await connect(f"{server.url}/base", api_key="own")
    sent = {"content-type": "a/b", "accept-encoding": "gzip", "authorization": "callers", "user-agent": "u", "x": "1"}
    sent |= {"host": "elsewhere", "content-length": "99", "transfer-encoding": "chunked", "connection": "close"}
    await (await upstream.relay(relayed(headers=sent))).close()
    head, body = server.requests[0]
    first, *lines = head.decode().rstrip().split("\r\n")
    headers = dict(line.split(": ", 1) for line in lines)
    assert first == "POST /base/v1/x?a=1 HTTP/1.1"
    assert headers.pop("user-agent").startswith("responses-gateway/")
    assert headers == {
        "host": server.url.removeprefix("http://"),
        "authorization": "Bearer own",
        "accept-encoding": "gzip",
        "content-type": "a/b",
        "x": "1",
        "content-length": "4",
    }
    assert body == b"body"


async def test_no_callers_key_goes_out_where_the_gateway_has_none(serve, connect, answer):
    server = await serve(answer("200 OK", b"{}"))
    upstream = await connect(server.url)
    await (await upstream.relay(relayed(headers={"authorization": "callers"}))).close()
    head = server.requests[0][0].lower()
    assert b"authorization" not in head
    assert b"accept-encoding: identity" in head


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("401 No", "upstream_auth_failed"),
        ("403 No", "upstream_auth_failed"),
        ("307 There", "upstream_error"),
        ("999 ?", "upstream_error"),
    ],
)
async def test_what_is_no_answer_for_callers(serve, connect, answer, status, code):
    server = await serve(answer(status, b"about own-key", "Location: http://x/"))
    upstream = await connect(server.url, api_key="own-key")
    with pytest.raises(UpstreamRefused) as caught:
        await upstream.relay(relayed())
    assert (caught.value.status, caught.value.code) == (502, code)
    assert "own-key" not in caught.value.message


async def test_rubbish_and_silence_are_told_as_for_responses(serve, connect, unused_port):
    server = await serve(b"SSH-2.0\r\n\r\n")
    with pytest.raises(UpstreamError):
        await (await connect(server.url)).relay(relayed())
    with pytest.raises(UpstreamUnavailable):
        await (await connect(f"http://127.0.0.1:{unused_port}", connect_retries=0)).relay(relayed())
    with pytest.raises(UpstreamUnavailable, match="not started"):
        await HttpUpstream(UpstreamSettings()).relay(relayed())


async def test_a_failing_server_is_left_alone_by_every_kind_of_call(serve, connect, answer, call):
    server = await serve(answer("503 No", b"{}"))
    upstream = await connect(server.url, breaker_failures=2, breaker_open=60.0)
    for _ in range(2):
        await (await upstream.relay(relayed())).close()
    with pytest.raises(Unavailable):
        await upstream.relay(relayed())
    with pytest.raises(Unavailable):
        await upstream.open(call())
