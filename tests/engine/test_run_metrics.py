"""What one run leaves in the metrics."""

import asyncio
import json

import pytest
from engine.doubles import Bench, Reply, streamed, types, whole
from harness.engine import Answer, frame, says

from gateway.protocol.errors import Unavailable

SPOKEN = says("Hello there", chunk=5)


async def test_what_a_stream_counts():
    bench = Bench()
    told = await bench.stream(streamed(SPOKEN))
    assert bench.sample("stream_events_total") == len(told)
    assert bench.sample("upstream_requests_total", status="200") == 1
    assert bench.sample("time_to_first_token_seconds_count") == 1
    assert bench.sample("stream_event_bytes_sum") == max(
        len(json.dumps(event, separators=(",", ":"))) for event in told
    )
    longest = max(len(line) for event in SPOKEN.frames() for line in event.splitlines() if line.startswith(b"data: "))
    assert bench.sample("upstream_line_bytes_sum") == longest
    assert bench.sample("retained_bytes_count") == 1
    assert (bench.sample("delivery_queue_batches"), bench.sample("delivery_queue_bytes")) == (0, 0)


async def test_a_call_left_before_its_status_is_not_counted_as_accepted():
    bench = Bench()
    waiting = asyncio.create_task(bench.answer(Reply(accept=asyncio.Event())))
    await asyncio.sleep(0.01)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert bench.sample("upstream_requests_total", status="cancelled") == 1


async def test_what_a_json_answer_counts():
    bench = Bench()
    await bench.answer(whole(SPOKEN))
    assert bench.sample("upstream_json_bytes_sum") == len(json.dumps(SPOKEN.response).encode())
    assert bench.sample("stream_events_total") == 0
    assert bench.sample("stream_event_bytes_count") == 0
    assert bench.sample("time_to_first_token_seconds_count") == 0


@pytest.mark.parametrize(
    ("item", "channel"),
    [
        ({"type": "message"}, "output_text"),
        ({"type": "message"}, "refusal"),
        ({"type": "reasoning"}, "reasoning_text"),
        ({"type": "reasoning"}, "reasoning_summary_text"),
        ({"type": "function_call", "name": "f", "call_id": "c"}, "function_call_arguments"),
        ({"type": "custom_tool_call", "name": "f", "call_id": "c"}, "custom_tool_call_input"),
    ],
)
async def test_the_first_delta_of_any_kind_is_the_first_token(item, channel):
    bench = Bench()
    added = frame({"type": "response.output_item.added", "output_index": 0, "item": item})
    delta = frame({"type": f"response.{channel}.delta", "output_index": 0, "delta": "x"})
    listener, task = await bench.start(Reply([added, delta, delta, asyncio.Event()]))
    assert f"{channel}.delta" in types(await listener.take_until_silent())
    assert bench.sample("time_to_first_token_seconds_count") == 1
    task.cancel()
    await asyncio.wait([task])


async def test_tokens_are_counted_by_kind_under_names_that_are_known():
    bench = Bench()
    usage = {
        "input_tokens": 50,
        "input_tokens_details": {"cached_tokens": 32},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
    }
    await bench.stream(streamed(Answer(SPOKEN.items, usage=usage)))
    await bench.answer(whole(Answer(SPOKEN.items, usage=usage)), model="made up")
    await bench.answer(whole(Answer(SPOKEN.items, usage=None)))
    for model in ("m", "other"):
        counted = [bench.sample("tokens_total", model=model, kind=kind) for kind in ("input", "cached", "output")]
        assert counted == [50, 32, 7]
    assert bench.sample("tokens_total", model="m", kind="reasoning") is None
    assert bench.sample("tokens_total", model="made up", kind="input") is None


async def test_the_duration_of_a_response_goes_by_transport_and_outcome():
    bench = Bench()
    await bench.stream(streamed(SPOKEN))
    assert bench.sample("response_seconds_count", transport="sse", status="completed") == 1


async def test_time_between_tokens_is_shared_by_what_arrived_together():
    bench = Bench()
    frames = SPOKEN.frames()
    first = next(place for place, data in enumerate(frames) if b"output_text.delta" in data)
    paced = [b"".join(frames[: first + 1]), b"".join(frames[first + 1 : first + 3]), b"".join(frames[first + 3 :])]
    await bench.stream(Reply(paced))
    # The first delta has nothing before it, and the last read ends with the commit.
    assert bench.sample("inter_token_seconds_count") == 2
    assert (
        0
        < bench.sample("inter_token_seconds_sum")
        < bench.sample("response_seconds_sum", transport="sse", status="completed")
    )


async def test_a_refusal_at_a_bound_is_counted_under_its_key_once():
    bench = Bench(upstream={"max_concurrent": 1, "max_concurrent_wait_seconds": 0.01})
    running = asyncio.create_task(bench.answer(Reply(accept=asyncio.Event())))
    await asyncio.sleep(0)
    with pytest.raises(Unavailable) as refused:
        await bench.answer()
    assert refused.value.bound == "upstream.max_concurrent"
    running.cancel()
    await asyncio.wait([running])
