"""One response from the upstream call to its end, as events and as JSON."""

import asyncio
import hashlib
import json
import logging

import pytest
from conformance.verdict import judge_response, judge_stream
from engine.doubles import (
    Bench,
    Reply,
    refusal,
    settle,
    streamed,
    text_of,
    types,
    whole,
)
from harness.engine import Answer, call, frame, message, reasoning, says

from gateway.protocol import sse
from gateway.protocol.errors import (
    GatewayError,
    InternalError,
    Unavailable,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnavailable,
)
from gateway.protocol.turn import Turn

SPOKEN = Answer([reasoning("Let me see."), message("The answer is 42."), call("f", '{"a": 1}', "call_1")], chunk=5)
TOOLS = [{"type": "function", "name": "f", "parameters": {}}]
DEEP = b'data: {"type":"response.output_text.annotation.added","annotation":%b}\n\n' % (b"[" * 980 + b"]" * 980)
CREATED = frame({"type": "response.created", "response": {}})


def ended(told):
    """The response of the last event, once the stream is found to keep the rules."""
    stream = b"".join(sse.frame(event["type"].encode(), json.dumps(event).encode()) for event in told)
    assert judge_stream(stream + sse.DONE) == []
    return told[-1]["response"]


# ---------------------------------------------------------------- the answer in each form


@pytest.mark.parametrize("at_once", [False, True], ids=["event by event", "in one read"])
async def test_a_stream_tells_the_whole_answer(at_once):
    bench = Bench()
    response = ended(await bench.stream(streamed(SPOKEN, at_once=at_once), tools=TOOLS))
    assert (response["status"], text_of(response)) == ("completed", "The answer is 42.")
    assert [item["type"] for item in response["output"]] == ["reasoning", "message", "function_call"]
    assert bench.sample("responses_total", transport="sse", status="completed") == 1


async def test_a_json_answer_is_the_response_the_stream_ends_with():
    answered = await Bench().answer(whole(SPOKEN), tools=TOOLS)
    assert judge_response(answered) == []
    told = await Bench().stream(streamed(SPOKEN), tools=TOOLS)
    assert told[-1]["response"] == answered


async def test_an_upstream_may_answer_a_stream_in_json():
    told = await Bench().stream(whole(SPOKEN), tools=TOOLS)
    assert ended(told) == ended(await Bench().stream(streamed(SPOKEN), tools=TOOLS))


async def test_an_upstream_may_answer_json_with_a_stream():
    bench = Bench()
    assert await bench.answer(streamed(SPOKEN), tools=TOOLS) == await Bench().answer(whole(SPOKEN), tools=TOOLS)
    assert bench.sample("responses_total", transport="json", status="completed") == 1


async def test_an_incomplete_answer_ends_as_such():
    bench = Bench()
    response = ended(await bench.stream(streamed(Answer([message("The")], status="incomplete"))))
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert bench.sample("responses_total", transport="sse", status="incomplete") == 1


async def test_the_upstream_is_asked_in_the_form_the_caller_wants():
    bench = Bench()
    await bench.answer(whole(SPOKEN))
    await bench.stream(streamed(SPOKEN))
    assert [
        (call.stream, body["stream"]) for call, body in zip(bench.upstream.calls, bench.upstream.bodies, strict=True)
    ] == [
        (False, False),
        (True, True),
    ]
    assert all(body["store"] is False for body in bench.upstream.bodies)


async def test_times_come_from_the_clock():
    bench = Bench()
    plan = await bench.plan()
    bench.upstream.replies.append(whole(SPOKEN))
    bench.clock.seconds += 5.5
    answer = json.loads(await bench.engine.answer(plan))
    assert answer["completed_at"] - answer["created_at"] == 5


@pytest.mark.parametrize("salted", [True, False])
async def test_each_caller_can_have_a_prefix_cache_of_its_own(salted):
    bench = Bench(upstream={"cache_salt_per_principal": salted})
    await bench.answer(whole(SPOKEN), principal="ann")
    salt = hashlib.sha256(b"ann").hexdigest()
    assert bench.upstream.bodies[0].get("cache_salt") == (salt if salted else None)


async def test_an_alias_is_sent_as_the_model_it_stands_for_and_shown_as_asked():
    bench = Bench(upstream={"aliases": {"small": "qwen"}})
    answer = await bench.answer(whole(SPOKEN), model="small")
    assert (bench.upstream.bodies[0]["model"], answer["model"]) == ("qwen", "small")


async def test_the_dialect_has_the_last_word_on_the_body():
    bench = Bench()
    bench.upstream.dialect.adapt = lambda body: {**body, "mended": True}
    await bench.answer(whole(SPOKEN))
    assert bench.upstream.bodies[0]["mended"] is True


async def test_a_call_beyond_the_seats_of_its_upstream_is_refused():
    bench = Bench(upstream={"max_concurrent": 1, "max_concurrent_wait_seconds": 0})
    listener, task = await bench.start(Reply([CREATED, asyncio.Event()]))
    await listener.take_until_silent()
    with pytest.raises(Unavailable, match="max_concurrent"):
        await bench.answer(whole(SPOKEN))
    task.cancel()
    await asyncio.wait([task])
    assert (await bench.answer(whole(SPOKEN)))["status"] == "completed"


# ---------------------------------------------------------------- when the client is told


async def test_nothing_is_told_before_the_upstream_has_accepted():
    bench = Bench()
    accept = asyncio.Event()
    listener, task = await bench.start(Reply(SPOKEN.frames(), accept=accept))
    await settle()
    assert not listener.opened
    accept.set()
    assert types(await listener.take_all())[:3] == ["created", "in_progress", "output_item.added"]
    await task


@pytest.mark.parametrize("form", ["stream", "json"])
@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (refusal(404, "model_not_found"), "404"),
        (refusal(500), "500"),
        (UpstreamUnavailable("No connection."), "unavailable"),
        (UpstreamTimeout("Silence."), "timeout"),
        (Unavailable("Left alone."), "breaker_open"),
    ],
    ids=["refused", "broken", "no connection", "timeout", "left alone"],
)
async def test_a_call_that_is_not_accepted_fails_the_request_itself(form, error, counted):
    bench = Bench()
    work = bench.stream if form == "stream" else bench.answer
    with pytest.raises(GatewayError) as failed:
        await work(Reply(error=error))
    assert failed.value is error
    assert bench.sample("upstream_requests_total", status=counted) == 1
    assert bench.sample("responses_total", transport="sse" if form == "stream" else "json", status="failed") == 1
    assert bench.sample("upstream_time_to_first_byte_seconds_count") == 1


async def test_after_a_while_the_stream_begins_all_the_same():
    bench = Bench(server={"commit_after_seconds": 0.01})
    accept = asyncio.Event()
    listener, task = await bench.start(Reply(accept=accept, error=refusal(429, "busy")))
    assert types(await listener.take_until_silent()) == ["created", "in_progress"]
    accept.set()
    rest = await listener.take_all()
    assert [(event["type"], event["sequence_number"]) for event in rest] == [("response.failed", 2)]
    assert rest[0]["response"]["error"] == {"code": "busy", "message": "The engine is busy."}
    await task


async def test_an_early_start_goes_on_as_if_nothing_had_happened():
    bench = Bench(server={"commit_after_seconds": 0})
    accept = asyncio.Event()
    listener, task = await bench.start(Reply(SPOKEN.frames(), accept=accept), tools=TOOLS)
    begun = await listener.take_until_silent()
    accept.set()
    assert ended(begun + await listener.take_all()) == ended(await Bench().stream(streamed(SPOKEN), tools=TOOLS))
    await task


async def test_a_stream_that_has_begun_is_not_begun_again():
    bench = Bench(server={"commit_after_seconds": 0.01})
    listener, task = await bench.start(Reply([CREATED, asyncio.Event()]))
    assert types(await listener.take_until_silent()) == ["created", "in_progress"]
    await asyncio.sleep(0.03)
    assert listener.waiting == []
    task.cancel()
    await asyncio.wait([task])


async def test_an_error_that_is_the_first_event_fails_the_request_itself():
    told = frame({"type": "error", "message": "Out of memory.", "code": "oom"})
    with pytest.raises(UpstreamError, match=r"Out of memory\.") as failed:
        await Bench().stream(Reply([told]))
    assert failed.value.code == "oom"


# ---------------------------------------------------------------- answers that go wrong


@pytest.mark.parametrize(
    ("end", "code"),
    [
        ([UpstreamError("The inference server broke off its answer.")], "upstream_error"),
        ([UpstreamTimeout("Silence.")], "upstream_timeout"),
        ([], "server_error"),
        ([b'data: {"type":"response.output_text.del'], "server_error"),
        ([b"data: not json\n\n"], "upstream_invalid_event"),
        ([DEEP], "upstream_invalid_event"),
        ([frame({"type": "error", "error": {"message": "Broke.", "code": "engine_dead"}})], "engine_dead"),
        ([frame({"type": "response.failed", "response": {"status": "failed", "error": {"code": "x"}}})], "x"),
    ],
    ids=["breaks off", "falls silent", "ends early", "torn", "garbage", "too deep", "error event", "failed"],
)
async def test_a_stream_that_goes_wrong_ends_as_failed_with_what_there_was(end, code):
    bench = Bench()
    reply = Reply([*says("Hello there", chunk=5).frames()[:6], *end])
    response = ended(await bench.stream(reply))
    assert (response["status"], response["error"]["code"]) == ("failed", code)
    assert (response["output"][0]["status"], text_of(response)) == ("incomplete", "Hello ther")
    assert (reply.closed, reply.retired) == (1, 0)
    assert await bench.stored(response["id"]) is None
    assert bench.sample("responses_total", transport="sse", status="failed") == 1
    (error,) = bench.metrics.last_errors.list()
    assert (error.route, error.code) == ("sse", code)


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"<html>", "upstream_invalid_body"),
        (b'{"object": "chat.completion"}', "upstream_invalid_body"),
        (b'{"output": [{"type": "odd", "x": %b}]}' % (b"[" * 980 + b"]" * 980), "upstream_invalid_body"),
        (b'{"status": "failed", "error": {"message": "Broke.", "code": "oom"}}', "oom"),
        (b'{"error": {"message": "Broke.", "code": "oom"}}', "oom"),
        (b'{"output": [], "status": "failed", "error": {"message": "Broke.", "code": "oom"}}', "oom"),
    ],
    ids=["no JSON", "no response", "too deep", "failed without output", "an error alone", "failed"],
)
@pytest.mark.parametrize("form", ["stream", "json"])
async def test_a_json_body_that_is_no_answer_fails_the_request_itself(form, body, code):
    bench = Bench()
    work = bench.stream if form == "stream" else bench.answer
    with pytest.raises(UpstreamError) as failed:
        await work(Reply([body], event_stream=False))
    assert (failed.value.code, failed.value.status) == (code, 502)
    assert bench.metrics.last_errors.list() == (), "whoever answers it remembers it"


async def test_the_connection_is_handed_back_after_a_complete_answer():
    for reply in (streamed(SPOKEN), whole(SPOKEN)):
        await Bench().stream(reply)
        assert (reply.closed, reply.retired) == (0, 1)


async def test_what_follows_the_end_is_not_read():
    response = ended(await Bench().stream(Reply([*SPOKEN.frames(), AssertionError("read on")])))
    assert response["status"] == "completed"


@pytest.mark.checklist(34)
async def test_what_is_no_event_of_ours_is_passed_over():
    bench = Bench()
    first, *rest = SPOKEN.frames()
    nothing = b"data:\n\ndata:  \n\ndata: [DONE]\n\ndata: [DONE] \n\n"
    heartbeat = frame({"type": "heartbeat"}) + b": comment\n\n" + nothing
    told = await bench.stream(Reply([first, heartbeat, *rest]), tools=TOOLS)
    assert types(told) == types(await Bench().stream(streamed(SPOKEN), tools=TOOLS))
    assert bench.sample("unknown_events_total") == 1


# ---------------------------------------------------------------- the deadline


async def test_a_stream_past_its_deadline_fails():
    bench = Bench(deadline=0.2)
    reply = Reply([*says("Hello").frames()[:5], asyncio.Event()])
    response = ended(await bench.stream(reply))
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert "run_deadline_seconds" in response["error"]["message"]
    assert (reply.closed, text_of(response)) == (1, "Hello")


@pytest.mark.parametrize("form", ["stream", "json"])
async def test_a_deadline_before_the_upstream_accepts_fails_the_request_itself(form):
    bench = Bench(deadline=0.02)
    work = bench.stream if form == "stream" else bench.answer
    with pytest.raises(GatewayError, match="run_deadline_seconds") as failed:
        await work(Reply(accept=asyncio.Event()))
    assert (failed.value.status, failed.value.code) == (500, "server_error")
    assert bench.sample("responses_total", transport="sse" if form == "stream" else "json", status="failed") == 1


# ---------------------------------------------------------------- our own faults


@pytest.mark.checklist(24)
async def test_a_fault_of_ours_in_a_stream_is_logged_and_told_as_such(caplog):
    bench = Bench()
    response = ended(await bench.stream(Reply([*says("Hello").frames()[:5], ZeroDivisionError("secret")])))
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert "secret" not in json.dumps(response)
    (record,) = (record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.exc_info[0] is ZeroDivisionError


async def test_a_failure_that_cannot_be_told_in_full_is_told_in_short(caplog, monkeypatch):
    def break_again(*_):
        raise RecursionError("secret")

    monkeypatch.setattr(Turn, "fail", break_again)
    told = await Bench().stream(Reply([*says("Hello").frames()[:5], UpstreamError("Broke.", code="oom")]))
    assert (types(told)[-1], told[-1]["code"], told[-1]["message"]) == ("error", "oom", "Broke.")
    assert [event["sequence_number"] for event in told] == list(range(len(told)))
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [RecursionError]


async def test_a_fault_of_ours_before_the_stream_is_the_answer():
    with pytest.raises(InternalError):
        await Bench().stream(Reply(error=ZeroDivisionError("secret")))


async def test_a_fault_of_ours_in_a_json_answer_is_counted_and_left_to_the_edge():
    bench = Bench()
    with pytest.raises(ZeroDivisionError):
        await bench.answer(Reply(error=ZeroDivisionError()))
    assert bench.sample("responses_total", transport="json", status="failed") == 1


# ---------------------------------------------------------------- leaving


async def test_cancelling_a_stream_closes_the_upstream_and_counts_no_end():
    bench = Bench()
    reply = Reply([*says("Hello").frames()[:5], asyncio.Event()])
    listener, task = await bench.start(reply)
    await listener.take_until_silent()
    task.cancel()
    await asyncio.wait([task])
    assert (task.cancelled(), reply.closed) == (True, 1)
    assert bench.sample("responses_total", transport="sse", status="failed") is None


async def test_cancelling_a_json_answer_closes_the_upstream():
    bench = Bench()
    reply = Reply([b'{"output"', asyncio.Event()], event_stream=False)
    work = asyncio.create_task(bench.answer(reply))
    await settle()
    work.cancel()
    await asyncio.wait([work])
    assert (work.cancelled(), reply.closed) == (True, 1)


async def test_a_client_that_does_not_read_makes_the_run_wait():
    bench = Bench()
    reply = streamed(says("x" * 1000, chunk=1))
    listener, task = await bench.start(reply)
    listener.reads.clear()
    await settle(1000)
    assert len(listener.waiting) == 1
    assert len(reply._waiting) > 900
    listener.reads.set()
    assert text_of((await listener.take_all())[-1]["response"]) == "x" * 1000
    await task


@pytest.mark.parametrize("form", ["stream", "json"])
async def test_the_gateways_own_key_is_taken_out_of_what_an_engine_says(form):
    words = {"code": "oom", "message": "the key s3cret did it"}
    if form == "stream":
        told = await Bench().stream(Reply([*says("Hello").frames()[:5], frame({"type": "error", **words})]))
        message = told[-1]["response"]["error"]["message"]
    else:
        with pytest.raises(UpstreamError) as raised:
            await Bench().answer(
                Reply([json.dumps({"status": "failed", "output": [], "error": words}).encode()], event_stream=False)
            )
        message = raised.value.message
    assert message == "the key [redacted] did it"
