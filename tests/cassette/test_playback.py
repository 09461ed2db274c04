import json

import httpx
import pytest
from cassette.provider import Provider
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from gateway.cassette.bounds import Bounds
from gateway.cassette.checks import check_sessions
from gateway.cassette.format import Cassette, Head, Http, encode_record, read_cassette
from gateway.cassette.playback import Playback, serve_playback
from gateway.cassette.recorder import MemorySink
from gateway.cassette.recording import record_scenario
from gateway.cassette.scenarios import SCENARIOS
from gateway.cassette.stage import Settings
from gateway.cassette.transcript import read_sessions


async def test_responses_of_a_websocket_are_served_by_http_too(record):
    """The recording of R1 whose outputs came late has two responses: with calls, and with their answers."""
    _, cassette = await record("R1", Provider(ends_after=0))
    async with serve_playback(Playback(cassette)) as url, httpx.AsyncClient(base_url=url) as client:
        assert (await client.get("/health")).status_code == 200
        assert (await client.get("/v1/models")).json()["data"][0]["id"] == "sim"
        assert (await client.get("/v1/else")).status_code == 404
        streamed = await client.post("/v1/responses", json={"stream": True})
        whole = await client.post("/v1/responses", json={})
        beyond = await client.post("/v1/responses", json={})
    events = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: ")]
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    assert events[-1]["type"] == "response.completed"
    assert not any("inject" in event["type"] for event in events)
    assert whole.json()["id"] == "resp_2"
    assert beyond.status_code == 503


async def ask_by_http(served: Cassette) -> tuple[str, Cassette]:
    """Record R14 of what is served, and return what it misses."""
    sink = MemorySink()
    async with serve_playback(Playback(served)) as url:
        settings = Settings(url=url, model="m", bounds=Bounds(step_seconds=10))
        outcome = await record_scenario(SCENARIOS["R14"], settings, sink)
    return outcome.missed, read_cassette(iter(sink.lines))


async def test_http_is_recorded_served_and_recorded_again(record):
    """The source has two responses, so that the third request of R14 is refused."""
    _, source = await record("R1", Provider(ends_after=0))
    missed, first = await ask_by_http(source)
    assert "holds nothing further" in missed
    again, second = await ask_by_http(first)
    assert again == missed
    for cassette in (first, second):
        pieces = [record for record in cassette.records if isinstance(record, Http)]
        assert [piece.status for piece in pieces if piece.status] == [200, 200, 503]
        assert (pieces[0].method, pieces[0].path) == ("POST", "/v1/responses")
        assert [json.loads(piece.body).get("stream") for piece in pieces if piece.body] == [True, True, None]
        findings = check_sessions(read_sessions(cassette.records), "R14")
        assert [problem for finding in findings for problem in finding.problems] == []
    bodies = [[session.answer[1] for session in read_sessions(cassette.records)] for cassette in (first, second)]
    assert bodies[0] == bodies[1]


def test_a_body_of_pieces_is_one_body():
    pieces = [
        Http(s=0, n=0, t=0, dir="c2s", method="POST", path="/v1/responses", body="{}"),
        Http(s=0, n=1, t=1, dir="s2c", status=200, headers={"content-type": "text/event-stream"}),
        Http(s=0, n=2, t=2, dir="s2c", b64="w4M="),
        Http(s=0, n=3, t=3, dir="s2c", chunk="x", fin=True),
    ]
    [session] = read_sessions([Head(), *pieces])
    assert session.answer[1] == "Ãx".encode()
    assert len(encode_record(pieces[2])) < 60


async def test_what_goes_another_way_is_told(record):
    _, cassette = await record("R12")
    playback = Playback(cassette)
    async with serve_playback(playback) as url:
        async with connect(url.replace("http", "ws") + "/v1/responses") as socket:
            await socket.send('{"type":"response.steer"}')
            assert json.loads(await socket.recv())["type"] == "error"
            await socket.send("{}")
        with pytest.raises(InvalidStatus):
            await connect(url.replace("http", "ws"))
    assert playback.problems == [
        "a client sent response.steer where response.create was recorded",
        "a client sent more than was recorded",
        "The recording holds nothing further.",
    ]
