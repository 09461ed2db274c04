import pytest
import yaml

from gateway.cassette.conversion import read_yaml, write_lines, write_yaml
from gateway.cassette.format import FORMAT, Barrier, Cassette, Failure, Head, Http, read_cassette

THEIRS = """
format: responses-websocket-v1
sessions:
  - handshake:
      request:
        method: GET
        url: ws://localhost:9000/v1/responses
        headers: {OpenAI-Beta: responses_multi_agent=v1}
      probe: {case: late, wall_timeout_seconds: 120.0}
      response:
        status_code: 101
        headers: {upgrade: websocket, date: 'Thu, 01 Oct 2026 08:00:53 GMT'}
    frames:
      - {ordinal: 0, elapsed_ms: 1.211, direction: client, opcode: 1, fin: true,
         text: "{\\"a\\":\\"\\u2028\\U0001f600\\"}"}
      - {ordinal: 1, elapsed_ms: 2.5570001234, direction: server, opcode: 1, fin: false, text: '{"b":'}
      - {ordinal: 2, elapsed_ms: 3, direction: server, opcode: 9, fin: true, payload_base64: aGk=}
      - {ordinal: 3, elapsed_ms: 3.5, direction: client, opcode: 10, fin: true, payload_base64: aGk=, seen: twice}
      - {ordinal: 4, elapsed_ms: 4.0, direction: client, opcode: 8, fin: true, payload_base64: A+g=, close_code: 1000,
         close_reason: ''}
    close_outcome: {kind: completed, peer_close_received: true, probe: {active: false}}
  - handshake: {request: {method: GET, url: 'ws://x'}, response: null}
    frames:
    close_outcome: {kind: handshake_failure, error: refused}
  - handshake: {}
    frames: []
"""


@pytest.mark.agents(139)
def test_yaml_comes_back_equal():
    cassette = read_yaml(THEIRS.encode())
    again = read_cassette(iter(write_lines(cassette).splitlines(keepends=True)))
    assert again.is_intact
    assert again == cassette
    assert yaml.safe_load(write_yaml(again)) == yaml.safe_load(THEIRS)


@pytest.mark.parametrize("name", ["R1", "R9", "R13"])
async def test_lines_come_back_byte_for_byte(name, record):
    _, cassette = await record(name)
    written = write_yaml(cassette)
    assert yaml.safe_load(written)["sessions"][0]["frames"][0]["direction"] == "client"
    assert write_lines(read_yaml(written)) == write_lines(cassette)


async def test_a_killed_recording_and_what_yaml_has_no_place_for(record):
    _, cassette = await record("R12")
    http = Http(s=1, n=0, t=10**12, dir="c2s", method="POST", path="/", body="{}")
    more = [
        http,
        Barrier(s=0, t=10**12 + 1, name="b", state="held"),
        Failure(t=10**12 + 2, where="x", class_="y", message="z"),
    ]
    cut = Cassette([*cassette.records[:-1], *more])
    again = read_yaml(write_yaml(cut))
    assert write_lines(again) == write_lines(cut)
    assert not again.is_complete
    assert write_lines(read_yaml(write_yaml(Cassette([Head(format=FORMAT)])))) == write_lines(
        Cassette([Head(format=FORMAT)])
    )


@pytest.mark.parametrize(
    "text",
    [
        b"a: [",
        b"[]",
        b"format: other",
        b"format: responses-websocket-v1\nsessions: [{frames: [{}]}]",
        b"format: responses-websocket-v1\nsessions: [&a {x: 1}, *a]",
        b"format: responses-websocket-v1\nsessions: [{frames: [{ordinal: 0, elapsed_ms: 1, direction: up}]}]",
    ],
)
def test_what_is_no_such_yaml_is_refused(text):
    from gateway.cassette.format import FormatError

    with pytest.raises(FormatError):
        read_yaml(text)
