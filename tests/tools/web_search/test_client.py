"""What a provider does wrong ends one query, within its bounds."""

import asyncio
import logging
import socket
import ssl

import pytest
import trustme
from msgspec import structs
from tools.web_search.scripted import KEY, answer

from gateway.tools.web_search.client import SearchFailed
from gateway.tools.web_search.provider import Call

CALL = Call(target="/search?q=rain", headers={"Authorization": f"Bearer {KEY}"})


async def fail(search, **changes) -> SearchFailed:
    with pytest.raises(SearchFailed) as failed:
        await search(**changes)._client.ask(CALL)
    assert KEY not in str(failed.value) + repr(failed.value.__cause__)
    return failed.value


async def test_json_is_read(search, provider):
    provider.reply = answer({"a": 1})
    client = search()._client
    assert await client.ask(CALL) == {"a": 1}
    (asked,) = provider.asked
    assert (asked.path, asked.headers["authorization"], asked.headers["accept-encoding"]) == (
        "/search", f"Bearer {KEY}", "identity",
    )  # fmt: skip
    assert asked.headers["user-agent"].startswith("responses-gateway/")


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        ("401 Unauthorized", "refused"),
        ("403 Forbidden", "refused"),
        ("429 Too Many Requests", "busy"),
        ("503 Unavailable", "busy"),
        ("500 Oops", "failed"),
        ("204 No Content", "failed"),
    ],
)
async def test_other_statuses_are_failures(search, provider, status, outcome):
    provider.reply = answer({}, status)
    failure = await fail(search)
    assert (failure.outcome, str(failure)) == (outcome, f"the answer has status {status[:3]}")


@pytest.mark.checklist(303)
async def test_redirects_are_not_followed(search, provider):
    provider.reply = answer({}, "302 Found", f"Location: {provider.url}/elsewhere\r\n")
    assert (await fail(search)).outcome == "failed"
    assert len(provider.asked) == 1


@pytest.mark.checklist(303)
@pytest.mark.parametrize("body", [b"", b"<html>", b'{"a": NaN}', b"\xff\xfe", b"[" * 5000, b'{"results": ['])
async def test_what_is_no_json_is_told(search, provider, body):
    provider.reply = answer(body)
    assert (await fail(search)).outcome == "invalid"


async def test_a_compressed_answer_is_not_unpacked(search, provider):
    provider.reply = answer(b"\x1f\x8b", headers="Content-Encoding: gzip\r\n")
    failure = await fail(search)
    assert (failure.outcome, "compressed" in str(failure)) == ("invalid", True)


@pytest.mark.checklist(303)
@pytest.mark.parametrize("head", [b"Content-Length: 104857600", b"Transfer-Encoding: chunked"])
async def test_of_a_hundred_megabytes_no_more_is_read_than_the_bound(search, provider, head):
    stopped = asyncio.Event()
    piece = b"x" * 65_536

    async def flood(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n" + head + b"\r\n\r\n")
        try:
            for _ in range(1600):
                writer.write(b"10000\r\n%b\r\n" % piece if b"chunked" in head else piece)
                await writer.drain()
                provider.sent += len(piece)
        finally:
            stopped.set()

    provider.reply = flood
    failure = await fail(search, max_response_bytes=100_000)
    assert (failure.outcome, "100000 bytes" in str(failure)) == ("too_large", True)
    await asyncio.wait_for(stopped.wait(), 10)
    assert provider.sent < 50_000_000


@pytest.mark.checklist(303)
@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"])
async def test_slow_bytes_end_with_the_time(search, provider, before):
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(before)
        while not writer.is_closing():
            writer.write(b" " if before.endswith(b"{") else b"X-Header: 1\r\n" if before else b"")
            await writer.drain()
            await asyncio.sleep(0.02)

    provider.reply = drip
    failure = await fail(search, timeout_seconds=0.1)
    assert (failure.outcome, str(failure)) == ("timeout", "no answer within 0.1 seconds")


async def test_a_queue_for_a_connection_counts_as_well(search, provider):
    held = asyncio.Event()

    async def hold(writer: asyncio.StreamWriter) -> None:
        await held.wait()

    provider.reply = hold
    client = search(timeout_seconds=0.1, max_connections=1)._client
    outcomes = await asyncio.gather(*(client.ask(CALL) for _ in range(3)), return_exceptions=True)
    assert [outcome.outcome for outcome in outcomes if isinstance(outcome, SearchFailed)] == ["timeout"] * 3
    held.set()
    provider.reply = answer({"a": 1})
    client._config = structs.replace(client._config, timeout_seconds=20.0)
    assert await client.ask(CALL) == {"a": 1}


async def test_a_broken_connection_is_told(search, provider):
    async def cut(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        writer.close()

    provider.reply = cut
    assert (await fail(search)).outcome == "failed"


async def test_what_is_not_http_is_told(search, provider):
    async def talk(writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.9\r\n\r\n")
        writer.close()

    provider.reply = talk
    assert (await fail(search)).outcome == "failed"


@pytest.mark.checklist(303)
async def test_private_addresses_need_leave(search, provider):
    failure = await fail(search, allow_private_addresses=False)
    assert (failure.outcome, "private" in str(failure)) == ("unreachable", True)
    assert provider.asked == []


async def test_nobody_there_is_told(search):
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        assert (await fail(search, url=url)).outcome == "unreachable"


async def test_proxies_of_the_environment_are_not_used(search, provider, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    provider.reply = answer({"a": 1})
    assert await search()._client.ask(CALL) == {"a": 1}


async def test_nobody_writes_the_key_into_a_log(search, provider, caplog):
    with caplog.at_level(logging.DEBUG):
        assert await search()._client.ask(CALL)
    assert KEY not in caplog.text


async def test_certificates_are_checked(search, provider, tmp_path):
    authority = trustme.CA()
    context = authority.issue_cert("127.0.0.1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.configure_cert(tls)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    provider.reply = answer({"a": 1})
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0, ssl=tls)
    async with server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        client = search(url=url, ca_file=str(tmp_path / "ca.pem"))._client
        assert await client.ask(CALL) == {"a": 1}
        await client.close()
        assert (await fail(search, url=url)).outcome == "unreachable"
