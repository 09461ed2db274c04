import asyncio
from contextlib import suppress

import pytest

from gateway.protocol.errors import UpstreamError, UpstreamRefused, UpstreamUnavailable

LIST = b'{"object":"list","data":[{"id":"m"}],"models":[{"name":"m"}]}'


@pytest.fixture
async def models_server(raw_server, answer):
    """Return a factory of servers that give these answers in turn, the last one for ever."""

    async def build(*bodies: bytes, gate: asyncio.Event | None = None):
        left = list(bodies)

        async def serve(server, reader, writer):
            while True:
                await server.read_request(reader)
                if gate is not None:
                    await gate.wait()
                writer.write(left.pop(0) if len(left) > 1 else left[0])

        return await raw_server(serve)

    return build


async def test_list_is_cached_and_reduced(models_server, connect, answer):
    server = await models_server(answer("200 OK", LIST))
    upstream = await connect(server.url)
    for _ in range(3):
        assert await upstream.models() == {"object": "list", "data": [{"id": "m"}]}
    assert len(server.requests) == 1


async def test_list_grows_old(models_server, connect, answer):
    server = await models_server(answer("200 OK", LIST), answer("200 OK", b'{"data":[]}'))
    upstream = await connect(server.url, models_cache=0.0)
    assert (await upstream.models())["data"] == [{"id": "m"}]
    assert (await upstream.models())["data"] == []


async def test_callers_share_one_question_and_one_may_leave(models_server, connect, answer):
    gate = asyncio.Event()
    server = await models_server(answer("200 OK", LIST), gate=gate)
    upstream = await connect(server.url)
    callers = [asyncio.create_task(upstream.models()) for _ in range(5)]
    while not server.requests:
        await asyncio.sleep(0.01)
    callers[0].cancel()
    gate.set()
    answers = await asyncio.gather(*callers, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert [reply["data"] for reply in answers[1:]] == [[{"id": "m"}]] * 4
    assert len(server.requests) == 1


async def test_failures_reach_everyone_and_are_not_kept(models_server, connect, answer):
    server = await models_server(answer("429 Too Many Requests", b'{"error":"later"}'), answer("200 OK", LIST))
    upstream = await connect(server.url)
    failures = await asyncio.gather(upstream.models(), upstream.models(), return_exceptions=True)
    assert [type(failure) for failure in failures] == [UpstreamRefused] * 2
    assert failures[0].code == "rate_limit_exceeded"
    assert (await upstream.models())["data"] == [{"id": "m"}]


DEEP = b"[" * 980 + b"]" * 980


@pytest.mark.parametrize(
    "body",
    [
        *(b"{}", b"[]", b'{"data":{}}', b'{"data":["m"]}', b"<html>", b" " * 3000),
        *(b"[" * 2000, DEEP, b'{"data":[{"id":"m","field":' + DEEP + b"}]}"),
    ],
)
async def test_other_answers_are_upstream_errors(models_server, connect, answer, body):
    server = await models_server(answer("200 OK", body))
    upstream = await connect(server.url, max_json_bytes=2500)
    with pytest.raises(UpstreamError) as caught:
        await upstream.models()
    assert caught.value.status == 502


async def test_nobody_listens(connect, unused_port):
    with pytest.raises(UpstreamUnavailable):
        await (await connect(f"http://127.0.0.1:{unused_port}")).models()


async def test_closing_ends_the_question(models_server, connect, answer):
    server = await models_server(answer("200 OK", LIST), gate=asyncio.Event())
    upstream = await connect(server.url)
    caller = asyncio.create_task(upstream.models())
    while not server.requests:
        await asyncio.sleep(0.01)
    await upstream.close()
    with pytest.raises(UpstreamUnavailable, match="closed"):
        await caller


async def test_a_model_is_known_once_the_list_has_been_read_behind_the_question(models_server, connect, answer):
    server = await models_server(answer("200 OK", LIST))
    upstream = await connect(server.url)
    assert not upstream.serves("m")
    await upstream.models()
    assert (upstream.serves("m"), upstream.serves("made up"), len(server.requests)) == (True, False, 1)


async def test_a_list_that_cannot_be_read_is_not_asked_for_all_the_time(models_server, connect, answer):
    server = await models_server(answer("404 Not Found", b"{}"))
    upstream = await connect(server.url)
    for _ in range(3):
        assert not upstream.serves("m")
        with suppress(UpstreamError):
            await upstream.models()
    asked = len(server.requests)
    for _ in range(3):
        assert not upstream.serves("m")
        await asyncio.sleep(0)
    assert len(server.requests) == asked


async def test_the_list_is_read_before_anybody_asks(simulator, connect):
    upstream = await connect(simulator.url)
    await upstream.probe()
    async with asyncio.timeout(20):
        while "sim" not in upstream._models._ids:
            await asyncio.sleep(0.01)
