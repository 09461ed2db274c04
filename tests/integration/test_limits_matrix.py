"""What must never count as a breach: answers that are merely finely cut, repeated, long or slowly read.

The numbers are the rows of the acceptance matrix for the default limits, over HTTP.
"""

import json
import re
from collections.abc import Callable

import pytest
from conformance import capture as captures
from conformance.verdict import judge_response, judge_stream
from harness.client import Answer, client, create, read_slowly
from harness.engine import Answer as EngineAnswer
from harness.engine import in_turn, message, reasoning, says
from harness.processes import Gateway
from harness.upstream import Reply, Request, Upstream

MIB = 1 << 20
SEED = "vllm-0.32.0/seed004_count_8192_stream"


def ask(gateway: Gateway, model: str, **members: object) -> Answer:
    return create(gateway.port, {"model": model, "input": "size reproduction", "stream": True, **members})


def expect_stored_text(gateway: Gateway, answer: Answer, text: str) -> None:
    """A streamed answer is whole, well formed and kept."""
    assert answer.status == 200, answer.body
    assert judge_stream(answer.body) == []
    assert answer.deltas() == text
    assert answer.final["status"] == "completed"
    with client(gateway.port) as caller:
        assert caller.get(f"/v1/responses/{answer.final['id']}").json == answer.final


@pytest.mark.parametrize(
    ("row", "size", "chunk"), [(1, 8000, 1), (2, 8000, 1024), (3, 220_000, 1024), (4, 270_000, 1024)]
)
def test_rows_1_to_4_chunking_does_not_count(
    gateway: Gateway, upstream: Upstream, row: int, size: int, chunk: int
) -> None:
    model = upstream.script(f"row-{row}", says("x" * size, chunk))
    expect_stored_text(gateway, ask(gateway, model), "x" * size)
    assert gateway.rows(model) == 1


def test_row_5_repeated_snapshots_do_not_count(gateway: Gateway, upstream: Upstream) -> None:
    text = "y" * 300_000
    model = upstream.script("row-5", EngineAnswer([message(text)], chunk=1024, repeats=12))
    expect_stored_text(gateway, ask(gateway, model), text)


@pytest.mark.checklist(36)
def test_row_6_a_long_answer_cut_by_its_token_limit(gateway: Gateway, upstream: Upstream) -> None:
    thought, text = spread(6771, 1672), spread(7265, 6312)
    items = [reasoning("".join(thought)), message("".join(text))]
    model = upstream.script("row-6", EngineAnswer(items, deltas=[thought, text], status="incomplete"))
    answer = ask(gateway, model)
    assert judge_stream(answer.body) == []
    kinds = [event["type"] for event in answer.events if event["type"].endswith(".delta")]
    assert len(kinds) == 7984
    assert answer.deltas("response.reasoning_text.delta") == "".join(thought)
    assert answer.deltas() == "".join(text)
    assert answer.final["status"] == "incomplete"
    assert answer.final["incomplete_details"] == {"reason": "max_output_tokens"}
    assert gateway.rows(model) == 1


@pytest.mark.parametrize(("row", "size"), [(7, MIB), (8, MIB + 1)])
def test_rows_7_and_8_a_json_body_around_one_mebibyte(
    gateway: Gateway, upstream: Upstream, row: int, size: int
) -> None:
    room = size - len(json.dumps(says("").response))
    text = "z" * room
    body = json.dumps(says(text).response).encode()
    assert len(body) == size

    async def answer_json(request: Request, reply: Reply) -> None:
        await reply.whole(body)

    model = upstream.script(f"row-{row}", answer_json)
    answer = ask(gateway, model, stream=False)
    assert answer.status == 200, answer.body[:400]
    assert judge_response(answer.json) == []
    assert answer.json["output"][0]["content"][0]["text"] == text
    assert gateway.rows(model) == 1


def test_row_9_the_same_answer_as_json(gateway: Gateway, upstream: Upstream) -> None:
    model = upstream.script("row-9", says("x" * 8000, 1))
    answer = ask(gateway, model, stream=False)
    assert judge_response(answer.json) == []
    assert answer.json["output"][0]["content"][0]["text"] == "x" * 8000


def test_row_10_unstored(gateway: Gateway, upstream: Upstream) -> None:
    model = upstream.script("row-10", says("x" * 8000, 1))
    answer = ask(gateway, model, store=False)
    assert judge_stream(answer.body) == []
    assert answer.deltas() == "x" * 8000
    assert gateway.rows(model) == 0


@pytest.mark.slow
@pytest.mark.timeout(180)
@pytest.mark.parametrize(
    ("chunk", "bytes_per_second"), [pytest.param(1024, 1024, id="1 KiB/s"), pytest.param(1, 65536, id="64 KiB/s")]
)
def test_rows_11_and_12_a_slow_reader_gets_the_same_bytes(
    gateway: Gateway, upstream: Upstream, chunk: int, bytes_per_second: int
) -> None:
    model = upstream.script(f"row-12-{chunk}", says("x" * 8000, chunk))
    request = {"model": model, "input": "size reproduction", "stream": True}
    fast = create(gateway.port, request).body
    slow = read_slowly(gateway.port, request, bytes_per_second)
    assert judge_stream(slow) == []
    assert anonymous(slow) == anonymous(fast)


def test_row_13_the_connection_is_healthy_after_a_failure(gateway: Gateway, upstream: Upstream) -> None:
    model = upstream.script("row-13", in_turn(cut_off, says("fine again")))
    request = {"model": model, "input": "twice", "stream": True}
    with client(gateway.port) as caller:
        failed, connection = caller.create(request), caller.socket
        healthy = caller.create(request)
        assert caller.socket is connection is not None
    assert judge_stream(failed.body) == []
    assert failed.final["status"] == "failed"
    expect_stored_text(gateway, healthy, "fine again")
    assert gateway.rows(model) == 1


@pytest.fixture
def seed(upstream: Upstream) -> str:
    """The recorded long answer; asked for JSON, the upstream gives the recording's final object."""
    recorded = captures.load(SEED)

    async def replay(request: Request, reply: Reply) -> None:
        if request.body.get("stream"):
            await captures.replay(request, reply)
        else:
            await reply.json(recorded.final)

    return upstream.script(SEED, replay)


def test_row_14_the_recorded_long_answer(start_gateway: Callable[..., Gateway], seed: str) -> None:
    recorded = captures.load(SEED)
    assert recorded.final is not None
    gateway = start_gateway()
    streamed, whole = ask(gateway, seed), ask(gateway, seed, stream=False)
    assert judge_stream(streamed.body) == []
    assert judge_response(whole.json) == []
    assert captures.said_in(streamed.events) == recorded.said
    for response in (streamed.final, whole.json):
        assert [captures.said_by(item) for item in response["output"]] == recorded.said
        assert response["status"] == "incomplete"
        assert captures.standard_usage(response["usage"]) == captures.standard_usage(recorded.final["usage"])
    assert gateway.rows() == 2


def test_row_14_the_recorded_long_answer_above_a_small_limit(start_gateway: Callable[..., Gateway], seed: str) -> None:
    gateway = start_gateway({"responses.max_retained_bytes": "4096"})
    whole, streamed = ask(gateway, seed, stream=False), ask(gateway, seed)
    assert whole.status == 502
    assert whole.headers["x-should-retry"] == "false"
    named = {name: whole.error[name] for name in ("code", "resource", "limit", "param")}
    limit = {"code": "response_resource_limit_exceeded", "resource": "max_retained_bytes", "limit": 4096, "param": None}
    assert named == limit
    assert judge_stream(streamed.body) == []
    assert streamed.final["status"] == "failed"
    assert streamed.final["error"]["code"] == "response_resource_limit_exceeded"
    assert "max_retained_bytes" in streamed.final["error"]["message"]
    assert gateway.rows() == 0


async def cut_off(request: Request, reply: Reply) -> None:
    """Begin to answer, then drop the connection."""
    await reply.head()
    await reply.send(b"".join(says("broken off").frames()[:-4]))
    reply.cut()


def spread(size: int, pieces: int) -> list[str]:
    """A text of `size` bytes in `pieces` pieces of nearly the same length."""
    short, rest = divmod(size, pieces)
    return ["n" * (short + 1)] * rest + ["m" * short] * (pieces - rest)


def anonymous(stream: bytes) -> bytes:
    """A stream with ids and times replaced."""
    without_ids = re.sub(rb"\b(resp|msg)_[0-9a-f]{32}", rb"\1_id", stream)
    without_times = re.sub(rb'("(?:created_at|completed_at)":)\d+(?:\.\d+)?', rb"\1 0", without_ids)
    return b"\n\n".join(block for block in without_times.split(b"\n\n") if not block.startswith(b":"))
