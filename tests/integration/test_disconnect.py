"""A caller that leaves: the upstream is told at once, the log says 499, nothing is kept."""

import asyncio
import json
import time
from collections.abc import Callable

import pytest
from harness.client import create, open_create, read_until
from harness.engine import frame, says
from harness.processes import Gateway
from harness.upstream import Reply, Request, Upstream
from integration.turns import await_calls

# The target is 0.1 s; a loaded machine gets some slack, and `-rP` shows the times measured.
NOTICE_SECONDS = 1.0
# A machine stalls now and then, but not each time.
CLIENTS = 3


async def stalls_before_answering(request: Request, reply: Reply) -> None:
    await asyncio.sleep(30)


async def stalls_mid_stream(request: Request, reply: Reply) -> None:
    frames = says("one two three four five six seven eight").frames()
    await reply.head()
    await reply.send(b"".join(frames[:6]))
    await asyncio.sleep(30)


async def never_stops(request: Request, reply: Reply) -> None:
    *opening, _, _, _, _ = says("").events()
    await reply.head()
    await reply.send(b"".join(frame(event) for event in opening))
    place = {"item_id": "msg_engine", "output_index": 0, "content_index": 0}
    while True:
        await reply.send(frame({"type": "response.output_text.delta", **place, "delta": "more ", "logprobs": []}))
        await asyncio.sleep(0.002)


async def stalls_in_the_json_body(request: Request, reply: Reply) -> None:
    body = json.dumps(says("half").response).encode()
    await reply.head(200, "application/json", len(body))
    await reply.send(body[:20])
    await asyncio.sleep(30)


LEAVING = [
    pytest.param("leaves-mid-stream", stalls_mid_stream, True, b"response.output_text.delta", id="mid stream, silent"),
    pytest.param("leaves-a-flow", never_stops, True, b"more ", id="mid stream, flowing"),
    pytest.param("leaves-early", stalls_before_answering, True, None, id="before the first byte"),
    pytest.param("leaves-json", stalls_before_answering, False, None, id="during a JSON call"),
    pytest.param("leaves-json-body", stalls_in_the_json_body, False, None, id="during a JSON body"),
]


@pytest.mark.checklist(25)
@pytest.mark.parametrize(("model", "script", "stream", "wait_for"), LEAVING)
def test_the_upstream_is_told_at_once(
    gateway: Gateway,
    upstream: Upstream,
    model: str,
    script: Callable[[Request, Reply], object],
    stream: bool,
    wait_for: bytes | None,
) -> None:
    upstream.script(model, script)
    noticed = []
    for client in range(CLIENTS):
        request_id = f"req-{model}-{client}"
        connection = open_create(
            gateway.port, {"model": model, "input": "hi", "stream": stream}, {"x-request-id": request_id}
        )
        call = await_calls(upstream, model, client + 1)[-1]
        if wait_for is not None:
            read_until(connection, wait_for)
        left_at = time.monotonic()
        connection.close()
        noticed.append(call.seconds_to_notice(left_at))
        gateway.await_log(request_id, '"status":499')
        assert call.ended.wait(20)
        assert not call.finished
    print(f"the upstream knew after {', '.join(f'{seconds * 1000:.1f}' for seconds in noticed)} ms")
    assert min(noticed) < NOTICE_SECONDS
    assert gateway.rows(model) == 0


def test_the_gateway_serves_on(gateway: Gateway, upstream: Upstream) -> None:
    upstream.script("gone", stalls_mid_stream)
    for _ in range(5):
        connection = open_create(gateway.port, {"model": "gone", "input": "hi", "stream": True})
        read_until(connection, b"response.output_text.delta")
        connection.close()
    answer = create(gateway.port, {"model": upstream.script("still-there", says("still there")), "input": "hi"})
    assert answer.status == 200
    assert answer.json["output"][0]["content"][0]["text"] == "still there"
    assert gateway.rows("still-there") == 1
