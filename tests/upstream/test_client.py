import asyncio
import json
import time
from contextlib import suppress

import pytest
from msgspec import structs

from gateway.ports import UpstreamCall
from gateway.protocol.errors import (
    ResourceLimitExceeded,
    UpstreamError,
    UpstreamRefused,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from gateway.upstream.client import HttpUpstream
from gateway.upstream.settings import UpstreamSettings
from gateway.upstream.simulated.fixture import Fixture

TOO_MUCH = b'{"error":{"message":"too much","type":"x","code":413}}'


def ask(model: str, *, stream: bool = False, **more) -> UpstreamCall:
    return UpstreamCall(
        body=json.dumps({"model": model, "input": "hi", "stream": stream, **more}).encode(), stream=stream
    )


async def collect(exchange, into: bytearray) -> None:
    while data := await exchange.read():
        into += data


async def until(condition) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


# ---------------------------------------------------------------- answers


async def test_stream_arrives_byte_for_byte(simulator, connect, read_all):
    upstream = await connect(simulator.url)
    exchange = await upstream.open(ask("fixture-8000-1", stream=True))
    assert exchange.is_event_stream
    assert await read_all(exchange) == Fixture(8000, 1).stream()


async def test_json_answer(simulator, connect, read_all):
    upstream = await connect(simulator.url)
    exchange = await upstream.open(ask("sim"))
    assert not exchange.is_event_stream
    assert json.loads(await read_all(exchange))["status"] == "completed"


async def test_reads_are_bounded_and_not_empty(simulator, connect):
    upstream = await connect(simulator.url, read_slice_bytes=1000)
    exchange = await upstream.open(ask("fixture-20000-500", stream=True))
    sizes = []
    while data := await exchange.read():
        sizes.append(len(data))
    assert max(sizes) <= 1000
    assert sum(sizes) == len(Fixture(20000, 500).stream())


async def test_events_arrive_before_the_stream_ends(simulator, connect):
    upstream = await connect(simulator.url)
    exchange = await upstream.open(ask("sim-stall", stream=True))
    seen = b""
    while b"output_text.delta" not in seen:
        seen += await exchange.read()
    await exchange.close()


async def test_fully_read_answers_share_a_connection(raw_server, connect, call, read_all, answer):
    async def serve(server, reader, writer):
        while True:
            await server.read_request(reader)
            writer.write(answer("200 OK", b"{}", "Content-Type: application/json"))

    server = await raw_server(serve)
    upstream = await connect(server.url)
    for _ in range(3):
        assert await read_all(await upstream.open(call())) == b"{}"
    assert server.connections == 1


async def test_an_answer_larger_than_the_buffer_leaves_its_connection_fit_for_the_next(simulator, connect, read_all):
    upstream = await connect(simulator.url, read_slice_bytes=1024)
    for _ in range(3):
        assert len(await read_all(await upstream.open(ask("fixture-50000-100", stream=True)))) > 50_000
    assert len(upstream._pool._all) == 1


async def test_an_answer_retired_before_its_end_leaves_its_connection_fit_for_the_next(simulator, connect, read_all):
    upstream = await connect(simulator.url, read_slice_bytes=1024)
    for _ in range(3):
        exchange = await upstream.open(ask("fixture-50000-100", stream=True))
        await exchange.read()
        exchange.retire()
        await until(lambda: len(upstream._pool._idle) == 1)
    assert len(upstream._pool._all) == 1


async def test_request_head(raw_server, connect, call, read_all, answer):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(answer("200 OK", b"{}", "Set-Cookie: a=b"))
        await server.read_request(reader)
        writer.write(answer("200 OK", b"{}"))

    server = await raw_server(serve)
    upstream = await connect(server.url, api_key="secret-key")
    forwarded = {"traceparent": "00-1-2-01", "authorization": "Bearer theirs", "content-length": "3", "Host": "evil"}
    for stream in (False, True):
        await read_all(await upstream.open(call(stream=stream, **forwarded)))
    heads = [head.decode().lower() for head, _ in server.requests]
    for head in heads:
        assert head.startswith("post /v1/responses http/1.1\r\n")
        assert "accept-encoding: identity\r\n" in head
        assert "content-type: application/json\r\n" in head
        assert "traceparent: 00-1-2-01\r\n" in head
        assert head.count("authorization:") == 1
        assert "authorization: bearer secret-key\r\n" in head
        assert head.count("content-length:") == 1
        assert "evil" not in head
        assert "cookie" not in head
    assert "accept: application/json\r\n" in heads[0]
    assert "accept: text/event-stream\r\n" in heads[1]


async def test_an_exchange_that_ended_stays_ended(simulator, connect, read_all):
    upstream = await connect(simulator.url)
    exchange = await upstream.open(ask("sim"))
    assert await read_all(exchange)
    for _ in range(2):
        exchange.retire()
        await exchange.close()
        assert await exchange.read() == b""
    assert upstream._pool._free.free == 1024


async def test_large_body_arrives_whole(simulator, connect, read_all):
    upstream = await connect(simulator.url)
    body = json.dumps({"model": "fixture-1-1", "input": "y" * 5_000_000}).encode()
    await read_all(await upstream.open(UpstreamCall(body=body, stream=False)))
    assert simulator.simulator.received[-1].body == body


# ---------------------------------------------------------------- chats


async def serve_chat(server, reader, writer):
    head = await server.read_request(reader)
    if b"text/event-stream" in head:
        body = b'data: {"choices":[{"delta":{"content":"hi"},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n" + body)
    else:
        body = b'{"choices":[{"message":{"content":"hi"},"finish_reason":"stop"}]}'
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%b" % (len(body), body))


async def test_a_chat_is_read_as_if_it_were_none(raw_server, connect, call, read_all):
    server = await raw_server(serve_chat)
    upstream = await connect(server.url + "/base", api="chat_completions")
    whole = json.loads(await read_all(await upstream.open(call())))
    assert whole["output"][0]["content"][0]["text"] == "hi"
    exchange = await upstream.open(call(stream=True))
    assert exchange.is_event_stream
    assert b"response.completed" in await read_all(exchange)
    assert [head.partition(b" HTTP")[0] for head, _ in server.requests] == [b"POST /base/v1/chat/completions"] * 2
    assert upstream.dialect.adapt({"model": "m", "input": "hi"})["messages"] == [{"role": "user", "content": "hi"}]


async def test_chats_keep_other_limits_from_the_next_call_on(raw_server, connect, call, read_all):
    server = await raw_server(serve_chat)
    upstream = await connect(server.url, api="chat_completions")
    upstream.reconfigure(UpstreamSettings(url=server.url, max_line_bytes=10, max_json_bytes=10))
    for stream, bound in ((False, "max_upstream_json_bytes"), (True, "max_upstream_sse_line_bytes")):
        with pytest.raises(ResourceLimitExceeded, match=bound):
            await read_all(await upstream.open(call(stream=stream)))


async def test_a_refused_chat_names_what_the_caller_sent(raw_server, connect, call, answer):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(answer("400 Bad Request", b'{"error":{"message":"no","param":"max_tokens"}}'))

    upstream = await connect((await raw_server(serve)).url, api="chat_completions")
    with pytest.raises(UpstreamRefused) as caught:
        await upstream.open(call())
    assert caught.value.param == "max_output_tokens"


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("model", "status", "code", "retry_after"),
    [
        ("sim-error-400", 400, "invalid_request", None),
        ("sim-error-429", 429, "rate_limit_exceeded", 2.0),
        ("sim-error-500", 502, "upstream_error", None),
        ("sim-error-503", 503, "server_is_overloaded", 1.0),
        ("nope", 404, "model_not_found", None),
    ],
)
async def test_refusals(simulator, connect, model, status, code, retry_after):
    upstream = await connect(simulator.url)
    with pytest.raises(UpstreamRefused) as caught:
        await upstream.open(ask(model))
    assert (caught.value.status, caught.value.code, caught.value.retry_after) == (status, code, retry_after)


@pytest.mark.parametrize(
    ("api", "body", "advises"),
    [
        ("responses", b'{"detail":"Not Found"}', True),
        ("responses", b'{"error":{"message":"The model `x` does not exist."}}', False),
        ("chat_completions", b'{"detail":"Not Found"}', False),
    ],
)
async def test_a_server_without_the_route_may_have_another(
    raw_server, connect, call, answer, caplog, api, body, advises
):
    async def serve(server, reader, writer):
        while True:
            await server.read_request(reader)
            writer.write(answer("404 Not Found", body))

    upstream = await connect((await raw_server(serve)).url, api=api)
    for _ in range(2):
        with pytest.raises(UpstreamRefused) as caught:
            await upstream.open(call())
        assert caught.value.status == 404
        assert ('api = "chat_completions"' in caught.value.message) is advises
    assert caplog.text.count("chat_completions") == advises


async def test_redirects_are_not_followed(raw_server, connect, call, answer):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(answer("307 Temporary Redirect", b"", f"Location: {server.url}/elsewhere"))

    server = await raw_server(serve)
    upstream = await connect(server.url)
    with pytest.raises(UpstreamRefused, match="redirects") as caught:
        await upstream.open(call())
    assert caught.value.status == 502
    assert len(server.requests) == 1


@pytest.mark.checklist(56)
async def test_huge_error_body_is_not_read_to_its_end(raw_server, connect, call):
    sent = 0

    async def serve(server, reader, writer):
        nonlocal sent
        await server.read_request(reader)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            sent += 65536
            await writer.drain()

    server = await raw_server(serve)
    upstream = await connect(server.url)
    with pytest.raises(UpstreamRefused) as caught:
        await upstream.open(call())
    assert caught.value.status == 400
    assert sent < 50_000_000


async def test_compressed_answer_is_an_upstream_error(raw_server, connect, call, answer):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(answer("200 OK", b"\x1f\x8b", "Content-Encoding: gzip"))

    server = await raw_server(serve)
    upstream = await connect(server.url)
    with pytest.raises(UpstreamError, match="compressed"):
        await upstream.open(call())


@pytest.mark.parametrize("encoding", ["identity", "IDENTITY", " Identity ", ""])
async def test_an_answer_that_says_it_is_not_compressed(raw_server, connect, call, answer, read_all, encoding):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(answer("200 OK", b"{}", f"Content-Encoding: {encoding}"))

    upstream = await connect((await raw_server(serve)).url)
    assert await read_all(await upstream.open(call())) == b"{}"


@pytest.mark.parametrize("status", [400, 429, 500, 503])
async def test_a_refusal_that_quotes_the_key(raw_server, connect, call, answer, status):
    body = b'{"error":{"message":"s3\\u0063ret is s3cret","type":"s3cret","code":"no-s3cret","param":"s3cret"}}'

    async def serve(server, reader, writer):
        while True:
            await server.read_request(reader)
            writer.write(answer(f"{status} No", body, "Retry-After: 7"))

    upstream = await connect((await raw_server(serve)).url, api_key="s3cret")
    for ask_it in (lambda: upstream.open(call()), upstream.models):
        with pytest.raises(UpstreamRefused) as caught:
            await ask_it()
        refused = caught.value
        shown = f"{refused!r}{refused.message}{refused.type}{refused.code}{refused.param}"
        assert "s3cret" not in shown
        assert refused.message == "[redacted] is [redacted]"
        assert (refused.retry_after, refused.upstream_status) == (7.0, status)
        assert refused.status == (502 if status == 500 else status)


# ---------------------------------------------------------------- broken connections


async def test_nobody_listens(connect, call, unused_port):
    upstream = await connect(f"http://127.0.0.1:{unused_port}")
    with pytest.raises(UpstreamUnavailable):
        await upstream.open(call())


async def test_not_started(call):
    with pytest.raises(UpstreamUnavailable, match="not started"):
        await HttpUpstream(UpstreamSettings()).open(call())


async def test_answer_that_is_not_http(raw_server, connect, call):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n\r\n")

    upstream = await connect((await raw_server(serve)).url)
    with pytest.raises(UpstreamError) as caught:
        await upstream.open(call())
    assert caught.value.status == 502


@pytest.mark.parametrize(("model", "stream"), [("sim-cut", True), ("sim-cut-json", False)])
async def test_cut_answer_raises_after_what_arrived(simulator, connect, model, stream):
    upstream = await connect(simulator.url)
    exchange = await upstream.open(ask(model, stream=stream))
    seen = bytearray()
    with pytest.raises(UpstreamError, match="broke off"):
        await collect(exchange, seen)
    assert b"resp_" in seen


async def test_bad_chunk_framing_raises(raw_server, connect, call, read_all):
    accepted = asyncio.Event()

    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n")
        await accepted.wait()
        writer.write(b"ZZ\r\n")
        await reader.read()

    upstream = await connect((await raw_server(serve)).url)
    exchange = await upstream.open(call())
    accepted.set()
    with pytest.raises(UpstreamError, match="broke off"):
        await read_all(exchange)


async def test_answer_before_the_request_was_read(raw_server, connect, answer):
    async def serve(server, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("413 Payload Too Large", TOO_MUCH))
        await asyncio.sleep(3600)

    upstream = await connect((await raw_server(serve)).url)
    with pytest.raises(UpstreamRefused, match="too much") as caught:
        await upstream.open(UpstreamCall(body=b"z" * 8_000_000, stream=False))
    assert caught.value.status == 413


@pytest.mark.parametrize("size", [100_000, 8_000_000])
async def test_answer_of_a_server_that_hangs_up_before_the_request_was_read(raw_server, connect, answer, size):
    async def serve(server, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer("413 Payload Too Large", TOO_MUCH))

    upstream = await connect((await raw_server(serve)).url)
    for _ in range(10):
        with pytest.raises(UpstreamRefused, match="too much") as caught:
            await upstream.open(UpstreamCall(body=b"z" * size, stream=False))
        assert caught.value.status == 413


async def test_connection_closed_while_idle_is_not_used(raw_server, connect, call, read_all, answer):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(answer("200 OK", b"{}"))

    server = await raw_server(serve)
    upstream = await connect(server.url)
    await read_all(await upstream.open(call()))
    await until(lambda: not upstream._pool._all)
    assert await read_all(await upstream.open(call())) == b"{}"
    assert server.connections == 2


async def test_call_that_may_have_begun_is_not_repeated(raw_server, connect, call, read_all, answer):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(answer("200 OK", b"{}"))
        await server.read_request(reader)

    server = await raw_server(serve)
    upstream = await connect(server.url)
    await read_all(await upstream.open(call()))
    with pytest.raises(UpstreamUnavailable, match="before it answered"):
        await upstream.open(call())
    assert len(server.requests) == 2


# ---------------------------------------------------------------- timeouts and leaving


async def test_first_byte_timeout_aborts_the_inference(simulator, connect):
    upstream = await connect(simulator.url, first_byte_timeout=0.1)
    with pytest.raises(UpstreamTimeout, match="begin to answer"):
        await upstream.open(ask("sim-stall"))
    await until(lambda: simulator.simulator.aborted == 1)


async def test_a_server_that_stops_reading_is_left_at_once(raw_server, connect):
    given_up, left = asyncio.Event(), asyncio.Event()

    async def serve(server, reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        await given_up.wait()
        with suppress(ConnectionResetError):
            while await reader.read(1 << 20):
                pass
        left.set()

    upstream = await connect((await raw_server(serve)).url, first_byte_timeout=0.2)
    with pytest.raises(UpstreamTimeout, match="begin to answer"):
        await upstream.open(UpstreamCall(body=b"z" * 50_000_000, stream=False))
    given_up.set()
    await asyncio.wait_for(left.wait(), 20)


async def test_connect_timeout_is_waited_for_once_without_retries(connect, call, monkeypatch):
    upstream = await connect("http://127.0.0.1:1", connect_timeout=0.1, connect_retries=0)
    attempts = []

    async def create_connection(*place, **options):
        attempts.append(place)
        await asyncio.sleep(3600)

    monkeypatch.setattr(asyncio.get_running_loop(), "create_connection", create_connection)
    attempts.clear()
    with pytest.raises(UpstreamTimeout, match="No connection"):
        await upstream.open(call())
    assert len(attempts) == 1


async def test_idle_timeout_aborts_the_inference(simulator, connect, read_all):
    upstream = await connect(simulator.url, idle_timeout=0.1)
    exchange = await upstream.open(ask("sim-stall", stream=True))
    with pytest.raises(UpstreamTimeout, match="idle_timeout_seconds"):
        await read_all(exchange)
    with pytest.raises(UpstreamTimeout):
        await exchange.read()
    await until(lambda: simulator.simulator.aborted == 1)


async def test_silence_is_no_end_of_a_body_without_a_length(raw_server, connect, call, read_all):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nhello")
        await reader.read()

    upstream = await connect((await raw_server(serve)).url, idle_timeout=0.1)
    with pytest.raises(UpstreamTimeout, match="idle_timeout_seconds"):
        await read_all(await upstream.open(call()))


async def test_a_slow_reader_is_not_the_servers_silence(simulator, connect, read_all):
    upstream = await connect(simulator.url, idle_timeout=0.1)
    exchange = await upstream.open(ask("sim", stream=True))
    await until(lambda: simulator.simulator.active == 0)
    await asyncio.sleep(0.3)
    assert b"response.completed" in await read_all(exchange)


async def test_steady_stream_outlives_the_idle_timeout(simulator, connect):
    upstream = await connect(simulator.url, idle_timeout=1.0)
    exchange = await upstream.open(ask("sim-slow-0.1", stream=True))
    began = time.monotonic()
    while time.monotonic() < began + 1.1:
        assert await exchange.read()
    await exchange.close()


async def test_steady_stream_does_not_outlive_the_total_timeout(simulator, connect):
    upstream = await connect(simulator.url, idle_timeout=20.0, total_timeout=0.5)
    exchange = await upstream.open(ask("sim-slow-0.1", stream=True))
    with pytest.raises(UpstreamTimeout, match="total_timeout_seconds"):
        await collect(exchange, bytearray())
    await until(lambda: simulator.simulator.aborted == 1)


async def test_pool_is_bounded_and_probes_have_their_own(simulator, connect, call):
    upstream = await connect(simulator.url, max_connections=1)
    exchange = await upstream.open(ask("sim-stall", stream=True))
    upstream.reconfigure(structs.replace(upstream._settings, connect_timeout=0.1))
    with pytest.raises(UpstreamTimeout, match="No connection"):
        await upstream.open(call())
    assert (await upstream.probe()).healthy
    await exchange.close()


async def test_cancelled_open_aborts_the_inference(simulator, connect):
    upstream = await connect(simulator.url)
    opening = asyncio.create_task(upstream.open(ask("sim-stall")))
    await until(lambda: simulator.simulator.active == 1)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    await until(lambda: simulator.simulator.aborted == 1)


async def test_early_close_aborts_the_inference_and_is_idempotent(simulator, connect):
    upstream = await connect(simulator.url)
    exchange = await upstream.open(ask("sim-stall", stream=True))
    await exchange.read()
    await exchange.close()
    await exchange.close()
    await until(lambda: simulator.simulator.aborted == 1)
    with pytest.raises(UpstreamError):
        await exchange.read()


async def test_closing_the_client_ends_open_exchanges(simulator, connect, read_all):
    upstream = await connect(simulator.url)
    exchange = await upstream.open(ask("sim-stall", stream=True))
    await upstream.close()
    with pytest.raises(UpstreamError):
        await read_all(exchange)
    await exchange.close()
    await upstream.close()


async def test_the_key_is_in_no_log_and_no_error(raw_server, connect, call, caplog):
    async def serve(server, reader, writer):
        await server.read_request(reader)
        writer.write(b"garbage\r\n\r\n")

    upstream = await connect((await raw_server(serve)).url, api_key="s3cret")
    with caplog.at_level("DEBUG"), pytest.raises(UpstreamError) as caught:
        await upstream.open(call())
    assert "s3cret" not in caplog.text + repr(caught.value)


def test_repr_of_settings_hides_the_key():
    assert "s3cret" not in repr(UpstreamSettings(api_key="s3cret"))


def test_the_key_is_taken_out_of_the_servers_words():
    upstream = HttpUpstream(UpstreamSettings(api_key="s3cret"))
    assert upstream.redact("your key s3cret is wrong") == "your key [redacted] is wrong"
    assert HttpUpstream(UpstreamSettings()).redact("nothing to hide") == "nothing to hide"
