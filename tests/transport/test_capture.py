import errno
import json
import logging
import stat
from pathlib import Path

import pytest

from gateway.config.schema import TelemetryConfig
from gateway.ports import Identity
from gateway.transport.capture import Capture

DATA = "data:image/png;base64," + "iVBORw0KGgo" * 20


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "captures"


@pytest.fixture
def build(folder):
    """Build a capture with these keys; it captures what `ada` does."""

    def build(**keys):
        chosen = {"capture_principals": ("ada",), "capture_dir": str(folder), **keys}
        return Capture(TelemetryConfig(**chosen), lambda: 1_700_000_000.0)

    return build


def scope_of(principal="ada", request_id="req_1", headers=()):
    state = {"request_id": request_id}
    if principal:
        state["identity"] = Identity(principal=principal)
    return {"type": "http", "method": "POST", "path": "/v1/responses", "headers": headers, "state": state}


def exchange(body, answer):
    """Return an app that takes a body and gives an answer, and both of its ends."""
    sent = []

    async def app(scope, receive, send):
        assert (await receive())["body"] == body
        await send({"type": "http.response.start", "status": 201, "headers": []})
        await send({"type": "http.response.body", "body": answer})

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    return app, receive, send, sent


async def capture_of(capture, folder, body=b"{}", answer=b"{}", **scope):
    before = set(folder.glob("*"))
    app, receive, send, sent = exchange(body, answer)
    await capture.serve(app, scope_of(**scope), receive, send)
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    made = set(folder.glob("*")) - before
    return made.pop() if made else None


async def test_a_request_and_its_answer_are_one_file_of_the_owners_own(build, folder):
    file = await capture_of(build(), folder, b'{"input": "hi"}', b"data: 1\n\n")
    assert file.name == "20231114T221320.000000-req_1.json"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert json.loads(file.read_text()) == {
        "time": "2023-11-14T22:13:20Z",
        "request_id": "req_1",
        "principal": "ada",
        "method": "POST",
        "path": "/v1/responses",
        "status": 201,
        "seconds": 0.0,
        "request": {"bytes": 15, "cut": False, "text": '{"input": "hi"}'},
        "response": {"bytes": 9, "cut": False, "text": "data: 1\n\n"},
    }


@pytest.mark.parametrize(
    ("keys", "scope", "wanted"),
    [
        ({}, {}, True),
        ({}, {"principal": "bob"}, False),
        ({}, {"principal": ""}, False),
        ({}, {"principal": "bob", "headers": [(b"x-capture", b"1")]}, False),
        ({"capture_header": "x-capture"}, {"principal": "bob", "headers": [(b"x-capture", b"1")]}, True),
        ({"capture_header": "x-capture"}, {"principal": "", "headers": [(b"x-capture", b"1")]}, False),
        ({"capture_header": "x-capture"}, {"principal": "bob"}, False),
    ],
)
def test_who_is_captured(build, keys, scope, wanted):
    assert build(**keys).wants(scope_of(**scope)) is wanted


def test_it_is_off_until_somebody_is_chosen_and_says_when_it_is_not(caplog):
    capture = Capture(TelemetryConfig(), float)
    assert not capture.active
    assert caplog.records == []
    capture.reconfigure(TelemetryConfig(capture_header="x-capture"))
    assert capture.active
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    capture.reconfigure(TelemetryConfig())
    assert not capture.active


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ('{"authorization": "s3cret", "a": 1}', '{"authorization": "[redacted]", "a": 1}'),
        ('{"X-Api-Key" : "s3\\"cret"}', '{"X-Api-Key" : "[redacted]"}'),
        (
            '"arguments": "{\\"api_key\\": \\"s3cret\\", \\"a\\": 1}"',
            '"arguments": "{\\"api_key\\": \\"[redacted]\\", \\"a\\": 1}"',
        ),
        ('{"password": "s3cre', '{"password": "[redacted]'),
        ('{"headers": {"X-A": "s3}cret\\"", "b": "c"}, "a": 1}', '{"headers": "[redacted]", "a": 1}'),
        ('{"headers": {"X-A": "s3cre', '{"headers": "[redacted]"'),
        ('"headers":{},"headers": null', '"headers":"[redacted]","headers": null'),
        (
            '{"server_url": "https://h.example:1/s3cret?a=b", "a": 1}',
            '{"server_url": "https://h.example:1/[redacted]", "a": 1}',
        ),
        ('{"server_url": "https://h.example?s3cret"}', '{"server_url": "https://h.example?[redacted]"}'),
        ('{"server_url": "https://a:s3cret@h.example/"}', '{"server_url": "[redacted]"}'),
        ("use Bearer s3cret.s3cret now", "use Bearer [redacted] now"),
        (f"rgw_abc123abc123_{'0f' * 32}", "rgw_abc123abc123_[redacted]"),
        ("sk-s3crets3crets3cret", "sk-[redacted]"),
        (f'"image_url": "{DATA}", "a"', '"image_url": "data:image/png;base64,[shortened]", "a"'),
        ('{"token": " a", "max_output_tokens": 5}', '{"token": " a", "max_output_tokens": 5}'),
    ],
)
async def test_secrets_that_show_are_left_out(build, folder, text, kept):
    file = await capture_of(build(), folder, text.encode(), text.encode())
    content = json.loads(file.read_text())
    assert (content["request"]["text"], content["response"]["text"]) == (kept, kept)
    assert content["request"]["bytes"] == len(text)


async def test_each_body_is_bounded_and_so_are_the_files(build, folder):
    capture = build(capture_max_bytes=10, capture_max_files=3)
    for number in range(5):
        file = await capture_of(capture, folder, b"a" * 11, b"b" * 10, request_id=f"req_{number}")
    content = json.loads(file.read_text())
    assert content["request"] == {"bytes": 11, "cut": True, "text": "a" * 10}
    assert content["response"] == {"bytes": 10, "cut": False, "text": "b" * 10}
    assert [file.name[-10:] for file in sorted(folder.iterdir())] == [f"req_{number}.json" for number in (2, 3, 4)]


async def test_not_more_at_once_than_files(build, folder):
    capture = build(capture_max_files=1)
    _, receive, send, _ = exchange(b"", b"")
    seen = []

    async def app(scope, receive, send):
        seen.extend((capture.wants(scope_of()), capture.wants(scope)))

    await capture.serve(app, scope_of(), receive, send)
    assert seen == [False, False]
    assert capture.wants(scope_of())


async def test_a_folder_that_cannot_be_written_harms_no_request(build, folder, caplog):
    folder.write_text("a file")
    caplog.clear()
    await capture_of(build(), folder)
    assert "cannot be written" in caplog.messages[-1]


async def test_what_could_not_be_written_whole_is_not_left_behind(build, folder, caplog, monkeypatch):
    def fail(self, target):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "rename", fail)
    await capture_of(build(), folder)
    assert "No space left on device" in caplog.messages[-1]
    assert list(folder.iterdir()) == []
