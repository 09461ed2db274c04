import asyncio
from types import SimpleNamespace

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from gateway.transport.cycle import Cycle

DATE = (b"date", b"Mon, 02 Mar 2026 10:00:00 GMT")
STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"x-request-id", b"req_1")]


async def begin(kind, status, headers, method, keep_alive, more):
    """Return what a cycle of a kind makes of a head and a body: the bytes, and what it knows then."""
    sent = []
    cycle = kind(
        scope={"method": method},
        transport=SimpleNamespace(write=sent.append, close=lambda: sent.append(b"closed")),
        flow=SimpleNamespace(write_paused=False),
        logger=None,
        access_logger=None,
        access_log=False,
        default_headers=[DATE],
        message_event=asyncio.Event(),
        expect_100_continue=True,
        keep_alive=keep_alive,
        on_response=lambda: sent.append(b"through"),
    )
    given = {} if headers is None else {"headers": headers}
    await cycle.send({"type": "http.response.start", "status": status, **given})
    await cycle.send({"type": "http.response.body", "body": b"" if status == 204 else b"body", "more_body": more})
    known = vars(cycle)
    del known["transport"], known["flow"], known["message_event"], known["on_response"]
    return b"".join(sent), known


@pytest.mark.parametrize("keep_alive", [True, False])
@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize(
    ("status", "headers", "method"),
    [
        (200, STREAM, "POST"),
        (200, [], "POST"),
        (200, None, "POST"),
        (200, STREAM, "HEAD"),
        (429, STREAM, "POST"),
        (204, STREAM[1:], "POST"),
        (200, [*STREAM, (b"content-length", b"4")], "POST"),
        (200, [*STREAM, (b"connection", b"close")], "POST"),
        (200, [*STREAM, (b"Content-Type", b"twice")], "POST"),
        (200, [*STREAM, (b"x-unheard-of", b"any")], "POST"),
        (200, [(b"content-type", b"\ttabs \xff are fine")], "POST"),
    ],
)
async def test_an_answer_is_as_uvicorn_has_it(status, headers, method, keep_alive, more):
    args = status, headers, method, keep_alive, more
    assert await begin(Cycle, *args) == await begin(RequestResponseCycle, *args)


@pytest.mark.parametrize("value", [b"one\r\ntwo: three", b"one\n", b"\r", b"\x00", b"\x7f"])
async def test_no_header_holds_the_end_of_its_line(value):
    with pytest.raises(RuntimeError, match="header value"):
        await begin(Cycle, 200, [*STREAM, (b"content-type", value)], "POST", True, True)
