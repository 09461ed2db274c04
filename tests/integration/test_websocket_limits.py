"""The limits of a response on a WebSocket: what never counts as a breach, and what each breach looks like to the byte.

The numbers are rows of the acceptance matrix; their answers and sizes are those of the tests over HTTP.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence

import pytest
from conformance import capture as captures
from harness.client import client, create
from harness.engine import Answer as EngineAnswer
from harness.engine import message, reasoning, says
from harness.frames import Event
from harness.processes import Gateway
from harness.upstream import Reply, Request, Upstream
from harness.websocket import WebSocket
from integration.sizes import EVENT, JSON, KEYS, LINE, RETAINED, SMALL, Sizer, request, settings
from integration.test_limits_matrix import SEED, spread
from integration.turns import (
    COMPLETED,
    CREATED,
    FAILED,
    LIMIT_CODE,
    LONGEST_LANE,
    ask,
    deltas,
    expect_failed,
    expect_sound,
    expect_tags,
    final,
    id_of,
    refused,
    told,
)

MIB = 1 << 20
STORES = pytest.mark.parametrize("store", [True, False], ids=["stored", "unstored"])


class SocketSizer(Sizer):
    """Asks over a WebSocket for answers of exact sizes; the default lane's events are those of a stream over HTTP."""

    def ask_on(self, socket: WebSocket, key: str, size: int, **fields: object) -> list[Event]:
        """Ask for an answer that uses `size` bytes of one limit."""
        if key == EVENT and fields.get("store") is False:
            size -= 1  # `false` is echoed, which is a letter longer than what was sized
        self._upstream.script(key, self._script(key, size))
        return ask(socket, **{"model": key, **renamed(request(key)), **fields})


def renamed(body: dict[str, object]) -> dict[str, object]:
    return {"given" if name == "input" else name: value for name, value in body.items()}


@pytest.fixture
def socket(gateway: Gateway) -> Iterator[WebSocket]:
    with WebSocket(gateway.port, timeout=30) as running:
        yield running


@pytest.fixture(scope="module")
def small(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with four small limits."""
    with Gateway(tmp_path_factory.mktemp("small"), upstream.url, settings(SMALL)) as running:
        yield running


@pytest.fixture
def narrow(small: Gateway, upstream: Upstream) -> Iterator[WebSocket]:
    """A connection to it that is healthy after the test."""
    upstream.script("healthy", says("well"))
    with WebSocket(small.port) as running:
        yield running
        told(running, "healthy", store=False)


@pytest.fixture
def sizer(upstream: Upstream, gateway: Gateway) -> SocketSizer:
    return SocketSizer(upstream, gateway)


def expect_kept(gateway: Gateway, model: str, events: Sequence[Event], store: bool) -> None:
    """A stored response can be read and is one row; of an unstored one there is no trace."""
    with client(gateway.port) as caller:
        answer = caller.get(f"/v1/responses/{id_of(events)}")
    if store:
        assert answer.json == final(events)
    else:
        assert answer.status == 404
    assert gateway.rows(model) == int(store)


def expect_breach(events: Sequence[Event], key: str, limit: int, lane: str | None = None) -> None:
    """The answer names the limit, in the form that fits how far it had come."""
    if len(events) == 1:  # refused before anything was told
        (event,) = events
        expect_tags(events, lane)
        named = {
            "type": "upstream_error",
            "code": LIMIT_CODE,
            "resource": key,
            "limit": limit,
            "headers": {"x-should-retry": "false"},
        }
        error = {name: value for name, value in event["error"].items() if name != "message" and value is not None}
        assert (event["type"], event["status"], error) == ("error", 502, named)
        return
    expect_failed(events, LIMIT_CODE, lane)
    assert f"{key} ({limit} bytes)" in final(events)["error"]["message"]


def expect_no_trace(gateway: Gateway, socket: WebSocket, events: Sequence[Event], **fields: object) -> None:
    """What the caller was told of cannot be read, and not be continued either."""
    for id_ in {event["response"]["id"] for event in events if "response" in event}:
        with client(gateway.port) as caller:
            assert caller.get(f"/v1/responses/{id_}").status == 404
        refused(socket, "healthy", id_, **fields)


# ---------------------------------------------------------------- rows 1 to 6 and 14: no breach


@STORES
@pytest.mark.parametrize(
    ("row", "size", "chunk"), [(1, 8000, 1), (2, 8000, 1024), (3, 220_000, 1024), (4, 270_000, 1024)]
)
def test_rows_1_to_4_chunking_does_not_count(
    gateway: Gateway, socket: WebSocket, upstream: Upstream, row: int, size: int, chunk: int, store: bool
) -> None:
    model = upstream.script(f"ws row-{row} {store}", says("x" * size, chunk))
    events = ask(socket, model, store=store, stream_id="a")
    expect_sound(events, "a")
    assert deltas(events) == "x" * size
    assert "stream_id" not in final(events)
    expect_kept(gateway, model, events, store)


@STORES
def test_row_5_repeated_snapshots_do_not_count(
    gateway: Gateway, socket: WebSocket, upstream: Upstream, store: bool
) -> None:
    text = "y" * 300_000
    model = upstream.script(f"ws row-5 {store}", EngineAnswer([message(text)], chunk=1024, repeats=12))
    events = ask(socket, model, store=store)
    expect_sound(events)
    assert deltas(events) == text
    expect_kept(gateway, model, events, store)


@STORES
@pytest.mark.checklist(36)
def test_row_6_a_long_answer_cut_by_its_token_limit(
    gateway: Gateway, socket: WebSocket, upstream: Upstream, store: bool
) -> None:
    thought, text = spread(6771, 1672), spread(7265, 6312)
    items = [reasoning("".join(thought)), message("".join(text))]
    model = upstream.script(f"ws row-6 {store}", EngineAnswer(items, deltas=[thought, text], status="incomplete"))
    events = ask(socket, model, store=store)
    expect_sound(events)
    assert sum(event["type"].endswith(".delta") for event in events) == 7984
    assert deltas(events) == "".join(text)
    assert (events[-1]["type"], final(events)["incomplete_details"]) == (
        "response.incomplete",
        {"reason": "max_output_tokens"},
    )
    expect_kept(gateway, model, events, store)


@pytest.fixture
def seed(upstream: Upstream) -> str:
    """The recorded long answer; asked for JSON, the upstream gives the recording's final object."""
    recorded = captures.load(SEED)

    async def replay(asked: Request, reply: Reply) -> None:
        if asked.body.get("stream"):
            await captures.replay(asked, reply)
        else:
            await reply.json(recorded.final)

    return upstream.script(SEED, replay)


@pytest.mark.checklist(59)
def test_row_14_the_recorded_long_answer(start_gateway: Callable[..., Gateway], seed: str) -> None:
    recorded = captures.load(SEED)
    assert recorded.final is not None
    gateway = start_gateway()
    finals = [create(gateway.port, {"model": seed, "input": "hi", "stream": stream}) for stream in (True, False)]
    responses = [finals[0].final, finals[1].json]
    with WebSocket(gateway.port, timeout=30) as socket:
        for store in (True, False):
            events = ask(socket, seed, store=store)
            expect_sound(events)
            assert captures.said_in(events) == recorded.said
            responses.append(final(events))
    for response in responses:
        assert [captures.said_by(item) for item in response["output"]] == recorded.said
        assert captures.standard_usage(response["usage"]) == captures.standard_usage(recorded.final["usage"])
    assert gateway.rows() == 3


def test_row_14_the_recorded_long_answer_above_a_small_limit(start_gateway: Callable[..., Gateway], seed: str) -> None:
    gateway = start_gateway({"responses.max_retained_bytes": "4096"})
    whole, streamed = (
        create(gateway.port, {"model": seed, "input": "hi", "stream": stream}) for stream in (False, True)
    )
    assert (whole.status, whole.error["code"]) == (502, LIMIT_CODE)
    assert streamed.final["error"]["code"] == LIMIT_CODE
    with WebSocket(gateway.port, timeout=30) as socket:
        for store in (True, False):
            expect_breach(ask(socket, seed, store=store), RETAINED, 4096)
    assert gateway.rows() == 0


# ---------------------------------------------------------------- rows 15 to 38: four limits


@STORES
@pytest.mark.parametrize("key", KEYS)
def test_at_the_limit_passes(small: Gateway, narrow: WebSocket, sizer: SocketSizer, key: str, store: bool) -> None:
    before = small.rows(key)
    events = sizer.ask_on(narrow, key, SMALL[key], store=store)
    expect_sound(events)
    assert small.rows(key) == before + int(store)


@STORES
@pytest.mark.parametrize("key", KEYS)
def test_one_byte_more_fails_and_leaves_nothing(
    small: Gateway, narrow: WebSocket, sizer: SocketSizer, key: str, store: bool
) -> None:
    before = small.rows()
    events = sizer.ask_on(narrow, key, SMALL[key] + 1, store=store)
    expect_breach(events, key, SMALL[key])
    expect_no_trace(small, narrow, events)
    assert small.rows() == before
    expect_sound(sizer.ask_on(narrow, key, SMALL[key], store=False))


@pytest.mark.parametrize("raised", KEYS)
def test_a_limit_raised_alone_changes_no_other(
    start_gateway: Callable[..., Gateway], sizer: SocketSizer, raised: str
) -> None:
    with WebSocket(start_gateway(settings({**SMALL, raised: MIB})).port) as socket:
        for key in KEYS:
            events = sizer.ask_on(socket, key, SMALL[key] + 1)
            if key == raised:
                expect_sound(events)
            else:
                expect_breach(events, key, SMALL[key])


@pytest.mark.parametrize("key", KEYS)
def test_a_breach_leaves_other_lanes_alone(
    small: Gateway, narrow: WebSocket, sizer: SocketSizer, upstream: Upstream, key: str
) -> None:
    parent = told(narrow, "healthy", stream_id="b", store=False)
    events = sizer.ask_on(narrow, key, SMALL[key] + 1, stream_id="a")
    expect_breach(events, key, SMALL[key], "a")
    told(narrow, "healthy", "on", parent, stream_id="b", store=False)


def test_an_upstream_that_breaks_a_limit_is_left_at_once(narrow: WebSocket, upstream: Upstream) -> None:
    async def endless_line(asked: Request, reply: Reply) -> None:
        await reply.head()
        await reply.send(b"".join(says("begun").frames()[:5]) + b"data: ")
        while True:
            await reply.send(b"x" * 256)
            await asyncio.sleep(0.001)

    events = ask(narrow, upstream.script("ws endless line", endless_line))
    expect_breach(events, LINE, SMALL[LINE])
    assert upstream.await_call("ws endless line").left.wait(20)


# ---------------------------------------------------------------- rows 39, 40 and 59: hardly room for an event


def test_row_39_a_failure_without_output_fits(narrow: WebSocket, sizer: SocketSizer) -> None:
    events = sizer.ask_on(narrow, EVENT, SMALL[EVENT] + 1)
    expect_breach(events, EVENT, SMALL[EVENT])
    assert deltas(events)
    assert (final(events)["output"], final(events)["instructions"]) == ([], "i" * 2400)
    assert max(len(frame.payload) for frame in narrow.frames) <= SMALL[EVENT]


def test_row_40_no_failure_fits(start_gateway: Callable[..., Gateway], upstream: Upstream, sizer: SocketSizer) -> None:
    limit = sizer.first_event("ws bare")
    gateway = start_gateway(settings({EVENT: limit}))
    calls = len(upstream.calls("ws bare"))
    with WebSocket(gateway.port) as socket:
        first, last = ask(socket, "ws bare")
        assert [first["type"], last["type"]] == [CREATED, "error"]
        assert [first["sequence_number"], last["sequence_number"]] == [0, 1]
        assert (last["error"]["code"], last["error"]["message"]) == (LIMIT_CODE, f"Exceeds {EVENT} ({limit} bytes).")
        texts = [frame.payload for frame in socket.frames if frame.opcode == 1]
        assert len(texts[0]) == limit
        assert len(texts[1]) <= 320
        socket.expect_silence(0.1)
    assert len(upstream.calls("ws bare")) == calls
    assert gateway.rows() == 0


@pytest.mark.parametrize("lane", [None, "a"])
def test_a_request_too_large_to_be_echoed_is_never_sent(
    small: Gateway, narrow: WebSocket, upstream: Upstream, sizer: SocketSizer, lane: str | None
) -> None:
    fields = {} if lane is None else {"stream_id": lane}
    events = ask(narrow, "ws echo", instructions="i" * SMALL[EVENT], **fields)
    assert len(events) == 1
    expect_breach(events, EVENT, SMALL[EVENT], lane)
    events = ask(narrow, "ws echo", instructions="i" * SMALL[EVENT], generate=False, **fields)
    assert len(events) == 1
    expect_breach(events, EVENT, SMALL[EVENT], lane)
    assert upstream.calls("ws echo") == []
    assert small.rows("ws echo") == 0


@pytest.mark.checklist(38)
def test_row_59_the_name_of_the_lane_counts(small: Gateway, narrow: WebSocket, sizer: SocketSizer) -> None:
    before = small.rows(EVENT)
    events = sizer.ask_on(narrow, EVENT, SMALL[EVENT], stream_id=LONGEST_LANE)
    expect_breach(events, EVENT, SMALL[EVENT], LONGEST_LANE)
    assert events[-1]["type"] == FAILED
    assert max(len(frame.payload) for frame in narrow.frames) <= SMALL[EVENT]
    assert small.rows(EVENT) == before
    expect_no_trace(small, narrow, events, stream_id=LONGEST_LANE)
    # The overhead is `,"stream_id":"…"`: what is so much smaller fits on the lane, too.
    overhead = len(f',"stream_id":"{LONGEST_LANE}"')
    expect_breach(
        sizer.ask_on(narrow, EVENT, SMALL[EVENT] - overhead + 1, stream_id=LONGEST_LANE),
        EVENT,
        SMALL[EVENT],
        LONGEST_LANE,
    )
    expect_sound(sizer.ask_on(narrow, EVENT, SMALL[EVENT] - overhead, stream_id=LONGEST_LANE), LONGEST_LANE)
    events = sizer.ask_on(narrow, EVENT, SMALL[EVENT])
    assert events[-1]["type"] == COMPLETED
    with client(small.port) as caller:
        assert caller.get(f"/v1/responses/{id_of(events)}").json == final(events)
    assert small.rows(EVENT) == before + 2


def test_an_oversized_terminal_is_never_kept(small: Gateway, narrow: WebSocket, sizer: SocketSizer) -> None:
    before = small.rows()
    for number in range(30):
        events = sizer.ask_on(narrow, EVENT, SMALL[EVENT] + 1, store=number % 2 == 0)
        expect_breach(events, EVENT, SMALL[EVENT])
        expect_no_trace(small, narrow, events)
        assert small.rows() == before


def test_the_body_limit_of_json_is_told_before_anything(narrow: WebSocket, sizer: SocketSizer) -> None:
    assert len(sizer.ask_on(narrow, JSON, SMALL[JSON] + 1)) == 1
