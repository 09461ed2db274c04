"""The four limits of a response: where each of them bites, and what the caller then learns."""

import json

import pytest
from conformance.verdict import judge_response
from engine.doubles import Bench, BrokenStore, Reply, sizes, streamed, text_of, types, whole
from harness.engine import frame, message, says

from gateway.protocol.errors import RESOURCE_LIMIT_CODE, ResourceLimitExceeded
from gateway.protocol.limits import MINIMAL_ERROR_BYTES

ANSWER = says("The quick brown fox jumps over the lazy dog. " * 40, chunk=50)
BODY = len(json.dumps(ANSWER.response).encode())
LINE = max(len(line) for event in ANSWER.frames() for line in event.split(b"\n"))
UNTOUCHED = AssertionError("written")


def limited(resource, limit, **options):
    """A bench with one small limit and a store that must not be reached."""
    return Bench(store=BrokenStore(UNTOUCHED), responses={resource: limit}, **options)


async def retained():
    bench = Bench()
    await bench.answer(whole(ANSWER))
    return int(bench.sample("retained_bytes_sum"))


async def event_sizes(answer=ANSWER, **fields):
    return sizes(await Bench().stream(streamed(answer), **fields))


def assert_breach(error, resource, limit):
    assert (error["code"], error["resource"], error["limit"]) == (RESOURCE_LIMIT_CODE, resource, limit)
    assert resource in error["message"]


def assert_numbered(told):
    assert [event["sequence_number"] for event in told] == list(range(len(told)))


# ---------------------------------------------------------------- where each limit bites

FORMS = [
    pytest.param("max_retained_bytes", "stream", streamed, id="retained, stream"),
    pytest.param("max_retained_bytes", "json", whole, id="retained, JSON"),
    pytest.param("max_upstream_json_bytes", "json", whole, id="body, JSON"),
    pytest.param("max_upstream_json_bytes", "stream", whole, id="body, stream"),
    pytest.param("max_upstream_sse_line_bytes", "stream", streamed, id="line, stream"),
    pytest.param("max_upstream_sse_line_bytes", "json", streamed, id="line, JSON"),
    pytest.param("max_stream_event_bytes", "stream", streamed, id="event, stream"),
]


async def needs(resource):
    """What the answer needs of a limit."""
    if resource == "max_retained_bytes":
        return await retained()
    if resource == "max_stream_event_bytes":
        return max(await event_sizes())
    return BODY if resource == "max_upstream_json_bytes" else LINE


@pytest.mark.parametrize(("resource", "form", "reply"), FORMS)
async def test_an_answer_of_exactly_the_limit_passes(resource, form, reply):
    bench = Bench(responses={resource: await needs(resource)})
    made = bench.answer(reply(ANSWER)) if form == "json" else bench.stream(reply(ANSWER))
    response = await made if form == "json" else (await made)[-1]["response"]
    assert (response["status"], text_of(response)) == ("completed", ANSWER.items[0]["content"][0]["text"])
    assert bench.sample("limit_breaches_total", resource=resource) is None
    assert await bench.stored(response["id"]) is not None


@pytest.mark.parametrize(("resource", "form", "reply"), FORMS)
async def test_one_byte_more_ends_the_answer(resource, form, reply):
    limit = await needs(resource) - 1
    bench = limited(resource, limit)
    made = reply(ANSWER)
    if form == "stream" and reply is streamed:
        told = await bench.stream(made)
        assert_numbered(told)
        assert told[-1]["type"] == "response.failed"
        assert_breach(told[-1]["response"]["error"], resource, limit)
    else:
        with pytest.raises(ResourceLimitExceeded) as failed:
            await (bench.answer if form == "json" else bench.stream)(made)
        assert (failed.value.status, failed.value.should_retry) == (502, False)
        assert failed.value.details == {"resource": resource, "limit": limit}
    assert bench.sample("limit_breaches_total", resource=resource) == 1
    assert bench.sample("responses_total", transport="sse" if form == "stream" else "json", status="failed") == 1
    assert (made.closed, made.retired) in {(1, 0), (0, 1)}


@pytest.mark.parametrize("resource", ["max_retained_bytes", "max_upstream_json_bytes"])
async def test_an_upstream_that_breaks_a_limit_is_cut_off(resource):
    reply = Reply([json.dumps(ANSWER.response).encode(), AssertionError("read on")], event_stream=False)
    if resource == "max_retained_bytes":
        reply = Reply([*ANSWER.frames()[:20], AssertionError("read on")])
    with pytest.raises(ResourceLimitExceeded):
        await limited(resource, 300).answer(reply)
    assert (reply.closed, reply.retired) == (1, 0)


async def test_the_events_before_a_breach_are_delivered():
    told = await limited("max_retained_bytes", 700).stream(streamed(ANSWER))
    assert_numbered(told)
    deltas = "".join(event["delta"] for event in told if event["type"].endswith(".delta"))
    assert deltas
    assert text_of(told[-1]["response"]) == deltas
    assert judge_response(told[-1]["response"]) == []


@pytest.mark.parametrize("at_once", [False, True], ids=["event by event", "in one read"])
async def test_the_event_before_the_oversized_one_is_delivered_and_no_number_is_lost(at_once):
    told = await limited("max_stream_event_bytes", 1500).stream(streamed(ANSWER, at_once=at_once))
    assert types(told)[-2:] == ["output_text.delta", "failed"]
    assert_numbered(told)
    assert max(sizes(told)) <= 1500


@pytest.mark.parametrize("at_once", [False, True], ids=["event by event", "in one read"])
async def test_the_events_before_a_line_that_is_too_long_are_delivered(at_once):
    frames = [*says("Hello", chunk=1).frames()[:5], b"data: " + b"x" * 3000]
    reply = Reply([b"".join(frames)] if at_once else frames)
    told = await limited("max_upstream_sse_line_bytes", 2000).stream(reply)
    assert_numbered(told)
    assert text_of(told[-1]["response"]) == "H"
    assert_breach(told[-1]["response"]["error"], "max_upstream_sse_line_bytes", 2000)


async def test_json_does_not_know_the_limit_of_events():
    assert (await Bench(responses={"max_stream_event_bytes": 1}).answer(whole(ANSWER)))["status"] == "completed"


async def test_a_breach_in_the_first_event_fails_the_request_itself():
    added = frame({"type": "response.output_item.done", "output_index": 0, "item": message("x" * 5000)})
    bench = limited("max_stream_event_bytes", 2000)
    with pytest.raises(ResourceLimitExceeded):
        await bench.stream(Reply([added]))
    assert bench.sample("limit_breaches_total", resource="max_stream_event_bytes") == 1


# ---------------------------------------------------------------- the ladder of failures

INSTRUCTIONS = "Be brief. " * 50
BROKEN = {"type": "error", "error": {"message": "Broke.", "code": "engine_dead"}}


def broken_off(answer, frames):
    return Reply([*answer.frames()[:frames], frame(BROKEN)])


async def test_a_failure_carries_what_there_was():
    told = await Bench().stream(broken_off(says("Hello"), 5), instructions=INSTRUCTIONS)
    response = told[-1]["response"]
    assert (text_of(response), response["instructions"]) == ("Hello", INSTRUCTIONS)


async def test_a_failure_too_large_with_its_output_goes_without():
    told = await limited("max_stream_event_bytes", 2000).stream(
        broken_off(says("x" * 3000, chunk=100), 30), instructions=INSTRUCTIONS
    )
    response = told[-1]["response"]
    assert (told[-1]["type"], response["output"], response["instructions"]) == ("response.failed", [], INSTRUCTIONS)
    assert response["error"]["code"] == "engine_dead"
    assert_numbered(told)


async def test_a_failure_still_too_large_goes_without_the_requests_own_fields():
    asked = {
        "instructions": INSTRUCTIONS,
        "tools": [{"type": "function", "name": "f", "description": "d" * 300, "parameters": {}}],
    }
    in_progress = (await event_sizes(**asked))[1]
    bench = limited("max_stream_event_bytes", in_progress)
    told = await bench.stream(broken_off(says("x" * 3000, chunk=100), 30), **asked)
    response = told[-1]["response"]
    assert (told[-1]["type"], response["output"]) == ("response.failed", [])
    assert (response["instructions"], response["tools"]) == (None, [])
    assert judge_response(response) == []
    assert_numbered(told)


@pytest.mark.parametrize("message", ["Broke.", "x" * 5000, 'Über "alles" \\ \u2028', "\n"])
async def test_the_last_resort_is_a_small_error_event(message):
    in_progress = (await event_sizes())[1]
    broken = frame({**BROKEN, "error": {"message": message, "code": "engine_dead"}})
    told = await limited("max_stream_event_bytes", in_progress).stream(Reply([*says("Hello").frames()[:5], broken]))
    assert told[-1]["type"] == "error"
    assert told[-1]["code"] == told[-1]["error"]["code"] == "engine_dead"
    assert sizes(told)[-1] <= MINIMAL_ERROR_BYTES
    assert_numbered(told)


async def test_what_is_owed_before_a_failure_is_kept_to_the_limit_too():
    answer = says("x" * 3000, chunk=100)
    told = await Bench().stream(streamed(answer))
    part_done = sizes(told)[types(told).index("content_part.done")]
    item_done = types(told).index("output_item.done")
    assert sizes(told)[item_done] > part_done
    bench = limited("max_stream_event_bytes", part_done)
    # The item is complete, but its end is held back until the next begins; the failure comes first.
    told = await bench.stream(broken_off(answer, len(answer.frames()) - 1))
    assert types(told)[-2:] == ["content_part.done", "failed"]
    assert told[-1]["response"]["output"] == []
    assert_numbered(told)


# ---------------------------------------------------------------- before the upstream is asked


async def test_a_request_too_large_to_be_echoed_is_refused_before_the_upstream_is_asked():
    created = (await event_sizes(instructions=INSTRUCTIONS))[0]
    bench = limited("max_stream_event_bytes", created - 1)
    with pytest.raises(ResourceLimitExceeded) as failed:
        await bench.stream(instructions=INSTRUCTIONS)
    assert failed.value.details == {"resource": "max_stream_event_bytes", "limit": created - 1}
    assert bench.upstream.calls == []
    assert bench.sample("responses_total", transport="sse", status="failed") == 1


async def test_the_first_event_alone_may_fit():
    created = (await event_sizes())[0]
    bench = limited("max_stream_event_bytes", created)
    told = await bench.stream()
    assert [event["type"] for event in told] == ["response.created", "error"]
    assert_numbered(told)
    assert told[-1]["code"] == RESOURCE_LIMIT_CODE
    assert sizes(told)[-1] <= MINIMAL_ERROR_BYTES
    assert bench.upstream.calls == []
