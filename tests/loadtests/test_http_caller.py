"""The caller over HTTP, against a server that answers as it should and as it should not."""

import asyncio
import threading
from collections.abc import Callable, Iterator

import pytest
from cli.listener import listen
from harness.engine import Answer, frame, message, says
from harness.upstream import Reply, Request, Upstream
from http_caller import HttpCaller, NoModel, find_model
from measure import Turn
from witness import Witness

ANSWER = says("All is well.")


@pytest.fixture(scope="module")
def server() -> Iterator[Upstream]:
    with Upstream() as running:
        yield running


@pytest.fixture
def caller(server: Upstream, request: pytest.FixtureRequest) -> Iterator[HttpCaller]:
    """A caller with much patience, unless a server is to use it up."""
    timeout = 1.5 if request.node.name.endswith(("[say_nothing-timeout]", "[trickle-sequence gap]")) else 20.0
    made = HttpCaller(server.url, {"authorization": "Bearer sk-test"}, timeout)
    yield made
    made.close()


@pytest.fixture
def ask(caller: HttpCaller, server: Upstream) -> Callable[..., Turn]:
    def through(script, *, stream: bool = True, witness: Witness | None = None) -> Turn:
        witness = witness or Witness("sse")
        caller.ask({"model": server.script("m", script), "input": "x", "stream": stream}, witness)
        return witness.finish()

    return through


def test_a_stream_and_a_document_on_one_connection(ask: Callable[..., Turn], server: Upstream) -> None:
    before = len(server.requests)
    assert ask(ANSWER).outcome == ask(ANSWER, stream=False).outcome == ask(ANSWER).outcome == "ok"
    assert len(server.requests) == before + 3
    assert server.requests[-1].headers["authorization"] == "Bearer sk-test"


def test_events_are_seen_as_they_arrive(ask: Callable[..., Turn]) -> None:
    seen = threading.Event()

    class Watcher(Witness):
        def take(self, event, raw, now) -> None:
            super().take(event, raw, now)
            if event.type.endswith("delta"):
                seen.set()

    async def pause_after_the_first(request: Request, reply: Reply) -> None:
        frames = ANSWER.frames()
        first = next(number for number, data in enumerate(frames) if b".delta" in data) + 1
        await reply.head()
        await reply.send(b"".join(frames[:first]))
        # Whoever collects blocks of bytes never gets beyond this.
        assert await asyncio.to_thread(seen.wait, 15)
        await reply.send(b"".join(frames[first:]))
        await reply.end()

    assert ask(pause_after_the_first, witness=Watcher("sse")).outcome == "ok"


@pytest.mark.parametrize("size", [1, 7, 300])
def test_pieces_may_be_cut_anywhere(ask: Callable[..., Turn], size: int) -> None:
    data = b"".join(ANSWER.frames()) + b"data: [DONE]\n\n"

    async def in_pieces(request: Request, reply: Reply) -> None:
        await reply.stream(*(data[start : start + size] for start in range(0, len(data), size)))

    assert ask(in_pieces).outcome == "ok"


def test_other_line_ends_and_comments(ask: Callable[..., Turn]) -> None:
    data = b": keep-alive\n\n" + b"".join(ANSWER.frames())

    async def otherwise(request: Request, reply: Reply) -> None:
        await reply.stream(data.replace(b"\n", b"\r\n"))

    assert ask(otherwise).outcome == "ok"


async def end_early(request: Request, reply: Reply) -> None:
    await reply.stream(*ANSWER.frames()[:-1])


async def cut(request: Request, reply: Reply) -> None:
    await reply.head()
    await reply.send(b"".join(ANSWER.frames()[:4]))
    reply.cut()


async def cut_at_once(request: Request, reply: Reply) -> None:
    reply.cut()


async def skip(request: Request, reply: Reply) -> None:
    frames = ANSWER.frames()
    await reply.stream(*frames[:2], *frames[3:])


async def name_a_lane(request: Request, reply: Reply) -> None:
    await reply.stream(*(frame({**event, "stream_id": "left"}) for event in ANSWER.events()))


async def refuse(request: Request, reply: Reply) -> None:
    await reply.json({"error": {"message": "busy"}}, 503)


async def say_nothing(request: Request, reply: Reply) -> None:
    await asyncio.Event().wait()


async def trickle(request: Request, reply: Reply) -> None:
    await reply.head()
    while True:
        await reply.send(frame({"type": "response.in_progress", "sequence_number": 0}))
        await asyncio.sleep(0.02)


async def send_rubbish(request: Request, reply: Reply) -> None:
    await reply.stream(b"data: {nonsense\n\n")


async def send_json(request: Request, reply: Reply) -> None:
    await reply.json(ANSWER.response)


async def send_other_deltas(request: Request, reply: Reply) -> None:
    await Answer([message("one")], deltas=[["another"]])(request, reply)


@pytest.mark.parametrize(
    ("script", "fault"),
    [
        (end_early, "no terminal event"),
        (cut, "no terminal event"),
        (cut_at_once, "connection"),
        (skip, "sequence gap"),
        (name_a_lane, "wrong stream_id"),
        (refuse, "wrong status"),
        (say_nothing, "timeout"),
        (trickle, "sequence gap"),
        (send_rubbish, "unreadable event"),
        (send_json, "wrong content type"),
        (send_other_deltas, "text mismatch"),
    ],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_what_fails_and_that_the_next_turn_does_not(ask: Callable[..., Turn], script, fault: str) -> None:
    turn = ask(script)
    assert (turn.outcome, turn.fault) == ("failed", fault)
    assert ask(ANSWER).outcome == "ok"


def test_a_status_is_told_with_its_words(ask: Callable[..., Turn]) -> None:
    assert ask(refuse, stream=False).detail == '503: {"error": {"message": "busy"}}'


def test_the_first_model_is_found(server: Upstream) -> None:
    assert find_model(server.url, "sk-test") == "scripted"


def test_a_target_that_does_not_answer() -> None:
    with Upstream() as server:
        url = server.url
    with pytest.raises(NoModel, match=f"{url} does not answer: .*refused"):
        find_model(url, None)


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (401, b"{}", r"/v1/models was answered with 401; give it a key by LOAD_API_KEY"),
        (404, b"{}", r"/v1/models was answered with 404; name one by request\.model"),
        (200, b'{"data": []}', r"/v1/models names no model .* name one by request\.model"),
    ],
)
def test_a_target_that_names_no_model(status: int, body: bytes, told: str) -> None:
    with listen() as listener:
        listener.answers = {"/v1/models": (status, body)}
        with pytest.raises(NoModel, match=told):
            find_model(listener.url, None)


def test_nobody_listens() -> None:
    with Upstream() as server:
        url = server.url
    witness = Witness("sse")
    HttpCaller(url, {}, timeout=20.0).ask({"stream": True}, witness)
    assert witness.finish().fault == "connection"
