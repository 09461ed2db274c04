import contextvars
import io
import json
import logging
import sys

import msgspec
import pytest
from harness.logs import restored_logging
from opentelemetry.sdk.trace import TracerProvider

from gateway.ports import Identity
from gateway.telemetry.logs import (
    ConsoleFormatter,
    JsonFormatter,
    configure_logging,
    log_access,
    request_id_var,
    response_id_var,
    use_json,
)
from gateway.telemetry.tracing import Tracing


@pytest.fixture(name="restored_logging")
def restore_logging():
    with restored_logging():
        yield


class Terminal(io.StringIO):
    def isatty(self):
        return True


def record(message="hello", exc_info=None, **extra):
    made = logging.LogRecord("gateway.test", logging.WARNING, __file__, 1, message, None, exc_info)
    made.__dict__.update(extra)
    return made


def in_request(function):
    def run():
        request_id_var.set("req_1")
        response_id_var.set("resp_1")
        return function()

    return contextvars.copy_context().run(run)


def test_a_json_line_has_every_field():
    line = msgspec.json.decode(JsonFormatter().format(record(status=200)))
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "warning", "logger": "gateway.test", "message": "hello", "status": 200}


def test_lines_carry_the_ids_of_the_request():
    line = msgspec.json.decode(in_request(lambda: JsonFormatter().format(record())))
    assert (line["request_id"], line["response_id"]) == ("req_1", "resp_1")
    assert "request_id=req_1 response_id=resp_1" in in_request(lambda: ConsoleFormatter().format(record()))


def test_lines_carry_the_ids_of_the_trace():
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    caller = {"traceparent": f"00-{trace_id}-00f067aa0ba902b7-01"}

    def work(tracing):
        with tracing.start_request("GET", caller) as span:
            return msgspec.json.decode(JsonFormatter().format(record())), span.ids

    traced, ids = in_request(lambda: work(Tracing(TracerProvider(shutdown_on_exit=False))))
    assert ids == (trace_id, traced["span_id"]) == (traced["trace_id"], ids[1])
    untraced, _ = in_request(lambda: work(Tracing()))
    assert (untraced["trace_id"], "span_id" in untraced) == (trace_id, False)


def test_json_stays_one_line_whatever_is_logged():
    line = JsonFormatter().format(record("two\nlines", odd=object()))
    assert "\n" not in line
    assert msgspec.json.decode(line)["message"] == "two\nlines"


def test_a_callers_words_make_no_line_of_their_own_and_tell_a_terminal_nothing():
    shown = ConsoleFormatter().format(
        record("caf\u00e9\r\n12:00:00 INFO    all is well", parameter="\x1b[2J\x9b\u202e\n")
    )
    assert shown.isprintable()
    assert r"caf\u00e9\r\n12:00:00".replace(r"\u00e9", "\u00e9") in shown
    assert shown.endswith(r"parameter=\x1b[2J\x9b\u202e\n")


def test_words_that_utf8_cannot_carry_are_logged_escaped():
    made = record("half \ud800", parameter="\udfff", number=1 << 70, odd=object)
    line = JsonFormatter().format(made)
    assert line.isascii()
    assert (json.loads(line)["parameter"], json.loads(line)["number"]) == ("\udfff", 1 << 70)
    shown = ConsoleFormatter().format(made)
    assert shown.encode()
    assert r"half \ud800 parameter=\udfff" in shown


@pytest.mark.parametrize("formatter", [JsonFormatter(), ConsoleFormatter()])
def test_a_traceback_is_kept(formatter):
    try:
        raise ValueError("broken")
    except ValueError:
        assert "ValueError: broken" in formatter.format(record(exc_info=sys.exc_info()))


def test_console_line_shows_level_message_and_fields():
    line = ConsoleFormatter().format(record("hello", path="/livez"))
    assert line.endswith(" WARNING hello path=/livez")


@pytest.mark.parametrize(
    ("log_format", "stream", "json"),
    [
        ("json", Terminal(), True),
        ("console", io.StringIO(), False),
        ("auto", Terminal(), False),
        ("auto", io.StringIO(), True),
    ],
)
def test_auto_is_console_on_a_terminal(log_format, stream, json):
    assert use_json(log_format, stream) is json


def test_one_access_line_per_request(restored_logging):
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    in_request(lambda: log_access("POST", "/v1/responses", 200, 0.01234))
    line = msgspec.json.decode(stream.getvalue())
    assert {name: line[name] for name in ("method", "path", "status", "ms", "request_id", "response_id")} == {
        "method": "POST",
        "path": "/v1/responses",
        "status": 200,
        "ms": 12.3,
        "request_id": "req_1",
        "response_id": "resp_1",
    }


@pytest.mark.parametrize(
    ("caller", "told"),
    [
        (None, {}),
        (Identity(principal="ada"), {"principal": "ada"}),
        (Identity(principal="ada", key_id="k1"), {"principal": "ada", "key_id": "k1"}),
    ],
)
def test_the_access_line_names_who_called(restored_logging, caller, told):
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    log_access("GET", "/v1/models", 200, 0.001, caller)
    line = msgspec.json.decode(stream.getvalue())
    assert {name: line[name] for name in ("principal", "key_id") if name in line} == told


def test_the_audit_log_is_kept_at_any_level(restored_logging):
    stream = io.StringIO()
    configure_logging("error", "json", stream)
    logging.getLogger("gateway.audit").info("seen")
    assert msgspec.json.decode(stream.getvalue())["message"] == "seen"


def test_the_level_is_kept(restored_logging):
    stream = io.StringIO()
    configure_logging("warning", "json", stream)
    log_access("GET", "/livez", 200, 0.001)
    logging.getLogger("gateway.test").warning("seen")
    assert [msgspec.json.decode(line)["message"] for line in stream.getvalue().splitlines()] == ["seen"]
