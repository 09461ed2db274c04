"""What a caller can send wrong: a clear refusal, the connection as good as before, nothing asked, kept or held.

Each refusal is followed by a sound request on the same connection, and at the end nothing of all of them is held.
"""

import http.client
import json
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_type_hints

import msgspec
import pytest
from harness.client import RESPONSES, Answer, Client, client
from harness.engine import says
from harness.upstream import Upstream
from integration.watched import Holdings, WatchedGateway

from gateway.protocol.requests import UNSUPPORTED, CreateFields

MIB = 1 << 20
BODY_LIMIT = 4 * MIB
BODY_SECONDS = 3.0
SETTINGS = {
    "server.max_request_body_bytes": "4MiB",
    "server.request_body_timeout_seconds": str(BODY_SECONDS),
    "telemetry.log_level": "warning",
}
SOUND = {"model": "sound", "input": "hi"}
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}}
NOBODY = "resp_" + "0" * 32
VALUES: list[Any] = [True, 7, -7, 1.5, 1e300, "", "text", [], [7], {}, {"a": 7}]
HINTS = get_type_hints(CreateFields, include_extras=True)


@pytest.fixture(scope="module")
def upstream() -> Iterator[Upstream]:
    """One of these tests' own, so that whatever reaches it came from them."""
    with Upstream() as running:
        running.script("sound", says("well"))
        yield running


@pytest.fixture(scope="module")
def watched(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedGateway]:
    with WatchedGateway(tmp_path_factory.mktemp("refusing"), upstream, SETTINGS) as running:
        yield running


@pytest.fixture(scope="module")
def idle(watched: WatchedGateway) -> Holdings:
    return watched.rest()


@pytest.fixture
def caller(watched: WatchedGateway, upstream: Upstream, idle: Holdings) -> Iterator[Client]:
    """A caller whose connection is sound after the test; of the model's requests only the last one reached anybody."""
    calls, rows = len(upstream.requests), watched.rows("sound")
    with client(watched.port) as running:
        yield running
        served = running.create(SOUND)
    assert served.status == 200, served.body
    assert [call.body["model"] for call in upstream.requests[calls:] if call.body.get("model") == "sound"] == ["sound"]
    assert watched.rows("sound") == rows + 1
    assert watched.settle(idle) == {}
    assert "Traceback" not in watched.log


def post(caller: Client, body: bytes, headers: dict[str, str] | None = None) -> Answer:
    """Send a body as it is, on a connection that must stay the same one."""
    before = caller.socket
    answer = caller.call("POST", RESPONSES, body, headers)
    assert before is None or caller.socket is before
    return answer


def expect_refusal(answer: Answer, code: str, param: str | None = None, status: int = 400) -> None:
    """The refusal has its status and code, a message for people, and names what is at fault."""
    assert (answer.status, answer.error["code"], answer.error["param"]) == (status, code, param), answer.body[:400]
    assert answer.error["type"] == "invalid_request_error"
    assert 10 < len(answer.error["message"]) < 600


# ---------------------------------------------------------------- what is no request


@pytest.mark.checklist(11)
@pytest.mark.parametrize(
    "body",
    [
        *(b"", b" ", b"{", b'{"model":"sound"', b"nonsense", b"\x00", b"\xff\xfe{", b'"text"', b"[]", b"null", b"7"),
        *(b'{"model":"sound","input":NaN}', b'{"model":"sound","input":"hi"} trailing', b"{'model':'sound'}"),
        b'{"model":"sound","input":"\xc3\x28"}',
    ],
    ids=repr,
)
def test_what_is_no_json_object(caller: Client, body: bytes) -> None:
    expect_refusal(post(caller, body), "invalid_json")


@pytest.mark.parametrize("depth", [101, 900, 100_000])
@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_deep_nesting(caller: Client, depth: int, opening: str, closing: str) -> None:
    nested = opening * (depth - 1) + "1" + closing * (depth - 1)
    expect_refusal(post(caller, f'{{"model":"sound","input":"hi","extra":{nested}}}'.encode()), "invalid_json")


def test_unclosed_nesting_is_no_json(caller: Client) -> None:
    expect_refusal(post(caller, b'{"model":"sound","input":' + b"[" * MIB), "invalid_json")


# ---------------------------------------------------------------- wrong types and values


def fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return False
    return True


@pytest.mark.parametrize("field", [name for name, kind in HINTS.items() if not fits(object, kind)])
def test_every_field_of_a_wrong_type_is_named(caller: Client, field: str) -> None:
    wrong = [value for value in VALUES if not fits(value, HINTS[field])]
    assert wrong
    for value in wrong:
        answer = post(caller, json.dumps({**SOUND, field: value}).encode())
        assert answer.status == 400, (value, answer.body)
        assert answer.error["code"] in {"invalid_type", "invalid_value"}
        assert answer.error["param"].partition(".")[0].partition("[")[0] == field
        assert field in answer.error["message"]


@pytest.mark.parametrize("field", sorted(UNSUPPORTED))
def test_what_is_not_offered_is_named(caller: Client, field: str) -> None:
    value = {"stream_id": "a"}.get(field, True)
    expect_refusal(post(caller, json.dumps({**SOUND, field: value}).encode()), "unsupported_parameter", field)


@pytest.mark.parametrize("missing", ["model", "input"])
def test_what_is_missing_is_named(caller: Client, missing: str) -> None:
    body = {name: value for name, value in SOUND.items() if name != missing}
    expect_refusal(post(caller, json.dumps(body).encode()), "missing_required_parameter", missing)


@pytest.mark.parametrize(
    "item",
    [
        *(7, "text", None, [], {}, {"type": 7}, {"type": "message"}, {"type": "message", "role": "user"}),
        {"role": "user", "content": 7},
        {"role": "nobody", "content": "hi"},
        {"role": "user", "content": [7]},
        {"role": "user", "content": [{"type": "input_text"}]},
        {"role": "user", "content": [{"type": "input_image", "image_url": "https://example.invalid/a.png"}]},
        {"type": "function_call_output", "output": "no call"},
        {"type": "function_call_output", "call_id": "call_1", "output": "nobody called"},
        {"type": "item_reference"},
        {"type": "item_reference", "id": "msg_nobody"},
    ],
    ids=json.dumps,
)
def test_a_wrong_item_is_named_by_its_place(caller: Client, item: Any) -> None:
    answer = post(caller, json.dumps({**SOUND, "input": [{"role": "user", "content": "hi"}, item]}).encode())
    assert answer.status == 400, answer.body
    # Which of several outputs belongs to no call is told in the message.
    orphan = isinstance(item, dict) and "call_id" in item
    assert answer.error["param"].startswith("input" if orphan else "input[1]")


# ---------------------------------------------------------------- too much


def test_ten_thousand_items_pass_and_one_more_does_not(caller: Client, upstream: Upstream) -> None:
    items = [{"role": "user", "content": "hi"}] * 10_001
    expect_refusal(post(caller, json.dumps({**SOUND, "input": items}).encode()), "array_above_max_length", "input")
    model = upstream.script("many-items", says("so many"))
    assert post(caller, json.dumps({"model": model, "input": items[:-1], "store": False}).encode()).status == 200
    assert len(upstream.calls(model)[0].body["input"]) == 10_000


def test_a_thousand_tools_pass_and_1025_do_not(caller: Client, upstream: Upstream) -> None:
    tools = [{**TOOL, "name": f"tool_{number}"} for number in range(1025)]
    expect_refusal(post(caller, json.dumps({**SOUND, "tools": tools}).encode()), "array_above_max_length", "tools")
    model = upstream.script("many-tools", says("so many"))
    body = {"model": model, "input": "hi", "tools": tools[:1000], "store": False}
    assert post(caller, json.dumps(body).encode()).status == 200
    assert len(upstream.calls(model)[0].body["tools"]) == 1000


@pytest.mark.parametrize("chunked", [False, True], ids=["length told", "chunked"])
@pytest.mark.parametrize("beyond", [1, BODY_LIMIT])
def test_a_body_too_large(caller: Client, chunked: bool, beyond: int) -> None:
    body = b'{"model":"sound","input":"' + b"x" * (BODY_LIMIT + beyond)
    answer = post_chunked(caller, body) if chunked else post(caller, body)
    expect_refusal(answer, "request_too_large", status=413)
    assert str(BODY_LIMIT) in answer.error["message"]


def post_chunked(caller: Client, body: bytes) -> Answer:
    pieces = (body[at : at + 65536] for at in range(0, len(body), 65536))
    connection: http.client.HTTPConnection = caller._connection
    connection.request("POST", RESPONSES, pieces, {"Content-Type": "application/json"}, encode_chunked=True)
    answer = connection.getresponse()
    return Answer(answer.status, dict(answer.getheaders()), answer.read())


def test_bodies_without_end_do_not_fill_the_memory(watched: WatchedGateway, idle: Holdings) -> None:
    def flood(_: int) -> int:
        """Send five times what is taken and return how many bytes the gateway let through."""
        sent = 0
        with socket.create_connection(("127.0.0.1", watched.port), timeout=10) as connection:
            head = f"POST {RESPONSES} HTTP/1.1\r\nHost: 127.0.0.1:{watched.port}\r\nTransfer-Encoding: chunked\r\n\r\n"
            connection.sendall(head.encode())
            try:
                while sent < 5 * BODY_LIMIT:
                    connection.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
                    sent += 65536
            except OSError:
                pass
        return sent

    before = watched.resident_mib
    with ThreadPoolExecutor(8) as callers:
        sent = list(callers.map(flood, range(24)))
    assert sum(sent) > 24 * BODY_LIMIT
    assert watched.settle(idle) == {}
    # Held together they would be ten times as much.
    assert watched.resident_mib - before < 48


def test_bodies_that_trickle_in_are_given_up(watched: WatchedGateway, upstream: Upstream, idle: Holdings) -> None:
    calls = len(upstream.requests)
    head = f"POST {RESPONSES} HTTP/1.1\r\nHost: 127.0.0.1:{watched.port}\r\nContent-Length: 5000\r\n\r\n".encode()
    slow = [socket.create_connection(("127.0.0.1", watched.port), timeout=10) for _ in range(50)]
    for connection in slow:
        connection.sendall(head + b'{"model":')
    assert watched.rest().beyond(idle)["gateway_active_responses"] == 50
    answers = []
    for connection in slow:
        with connection, connection.makefile("rb") as reader:
            answers.append(reader.read())
    for answer in answers:
        assert answer.startswith(b"HTTP/1.1 408 ")
        assert b'"code":"request_timeout"' in answer
        assert b"\r\nconnection: close\r\n" in answer
        assert b"request_body_timeout_seconds" in answer
    assert len(upstream.requests) == calls
    assert watched.settle(idle) == {}


# ---------------------------------------------------------------- what does not exist


@pytest.mark.parametrize("method", ["GET", "DELETE"])
@pytest.mark.parametrize("response_id", [NOBODY, "resp_", "x", "resp_%00", "r" * 2000, "%F0%9F%98%80"])
def test_an_unknown_response(caller: Client, method: str, response_id: str) -> None:
    expect_refusal(caller.call(method, f"{RESPONSES}/{response_id}"), "response_not_found", status=404)


def test_the_input_of_an_unknown_response(caller: Client) -> None:
    expect_refusal(caller.get(f"{RESPONSES}/{NOBODY}/input_items"), "response_not_found", status=404)


@pytest.mark.checklist(55)
@pytest.mark.parametrize(
    "parent", [NOBODY, "", "x", "\x00", "\ud800", "r" * 100_000], ids=lambda parent: ascii(parent)[:20]
)
def test_an_unknown_parent(caller: Client, parent: str) -> None:
    answer = post(caller, json.dumps({**SOUND, "previous_response_id": parent}).encode())
    expect_refusal(answer, "previous_response_not_found", "previous_response_id")


def test_a_request_that_is_reset_while_it_is_refused(watched: WatchedGateway, idle: Holdings) -> None:
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", watched.port), timeout=10) as connection:
            head = f"POST {RESPONSES} HTTP/1.1\r\nHost: 127.0.0.1:{watched.port}\r\nContent-Length: 1\r\n\r\n"
            connection.sendall(head.encode() + b"{")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert watched.settle(idle) == {}
    assert "Traceback" not in watched.log
