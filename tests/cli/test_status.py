"""`gateway status` against a listener that tells a status."""

import time

import msgspec
import pytest
from cli.listener import listen
from click.testing import CliRunner
from msgspec import structs
from telemetry.status_samples import make_status

from gateway.cli.main import cli

STATUS = make_status()


@pytest.fixture
def listener(monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    with listen() as listener:
        listener.answers = {"/status.json": (200, msgspec.json.encode(STATUS))}
        yield listener


def run(*arguments):
    return CliRunner().invoke(cli, ["status", *arguments])


def lines(result):
    return [" ".join(line.split()) for line in result.stdout.splitlines()]


def test_what_a_person_looks_for_is_there(listener):
    result = run("--url", listener.url)
    assert result.exit_code == 0
    told = lines(result)
    for line in (
        "● inference server default at http://127.0.0.1:8000: vllm, circuit breaker closed",
        "● database sqlite:///responses.db",
        "WebSockets: histories in memory 4.88 KiB 68.4 KiB \N{EN DASH}",
        "first token 61 35.2 ms 1.39 s 2 s",
        "responses.max_retained_bytes 131 745 B 15.9 KiB 1016 KiB 1 MiB 99 % 2",
        "sse failed 3",
        "server.max_concurrent_requests 17",
        "qwen-0.6b 120 000 90 000 4 321 0",
        "2027-01-16 06:13:20 /v1/responses 400 invalid_type req_00000000000000000000000000000000",
    ):
        assert line in told
    assert told[0].startswith("Responses Gateway 0.1.0 up 1 d 1 h auth none process 7")


def test_a_narrow_terminal_cuts_off_neither_breaches_nor_request_ids(listener, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    told = lines(run("--url", listener.url))
    assert "limits largest limit used breaches" in told
    assert "responses.max_retained_bytes 1016 KiB 1 MiB 99 % 2" in told
    assert sum("req_00000000000000000000000000000000" in line for line in told) == 1


def test_troubles_are_told_and_cannot_steer_the_terminal(listener):
    server = structs.replace(STATUS.upstreams[0], healthy=False, detail="gone\x1b[2J [red]x[/red]")
    listener.answers["/status.json"] = (200, msgspec.json.encode(structs.replace(STATUS, upstreams=(server,))))
    result = run("--url", listener.url)
    assert "! Inference server default is not well: gone [2J [red]x[/red]" in lines(result)
    assert "\x1b" not in result.stdout


def test_names_that_look_like_markup_are_shown_as_they_are(listener):
    user = structs.replace(STATUS.principals[0], principal="[/ops]")
    model = structs.replace(STATUS.tokens[0], model="[red]small[/nothing]")
    status = structs.replace(STATUS, principals=(user,), tokens=(model,))
    listener.answers["/status.json"] = (200, msgspec.json.encode(status))
    result = run("--url", listener.url)
    assert result.exit_code == 0
    assert {"[/ops]", "[red]small[/nothing]"} <= {line.split(" ")[0] for line in lines(result)}


def test_programs_get_the_document_as_it_is(listener):
    result = run("--url", listener.url, "--json")
    assert result.stdout.encode() == msgspec.json.encode(STATUS) + b"\n"


def test_it_asks_where_the_configuration_has_the_admin_listener(listener):
    assert run("--set", f"admin.bind=127.0.0.1:{listener.server_port}").exit_code == 0


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ((503, b"{}"), "/status.json was answered with 503"),
        ((200, b"<html>"), "what /status.json answered is no status of this version"),
        ((200, b'{"version":"9"}'), "what /status.json answered is no status of this version"),
    ],
)
def test_an_answer_that_is_none_ends_with_1(listener, answer, told):
    listener.answers["/status.json"] = answer
    result = run("--url", listener.url)
    assert (result.exit_code, result.stderr) == (1, f"error: {listener.url}: {told}\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--json", "--watch"], "leave --watch out"),
        (["--set", "admin.bind=127.0.0.1:0"], "port 0 lets the system choose"),
        (["--set", "admin.enabled=false"], "no admin listener"),
        (["--url", "localhost"], "write http://HOST:PORT"),
        (["--watch", "--url", "http://127.0.0.1:1"], "--watch draws on a terminal"),
    ],
)
def test_a_question_that_cannot_be_asked_is_refused(arguments, told):
    result = run(*arguments)
    assert result.exit_code == 2
    assert told in result.stderr


def test_watching_goes_on_without_an_answer_until_it_is_stopped(listener, monkeypatch):
    waits = []

    def wait(seconds):
        waits.append(seconds)
        listener.answers.pop("/status.json", None)
        if len(waits) == 2:
            raise KeyboardInterrupt

    monkeypatch.setenv("FORCE_COLOR", "1")
    # What does not fit on the screen is not drawn.
    monkeypatch.setenv("LINES", "60")
    monkeypatch.setattr(time, "sleep", wait)
    result = run("--url", listener.url, "--watch", "--interval", "7")
    assert (result.exit_code, waits) == (0, [7, 7])
    assert "first token" in result.stdout
    assert "/status.json was answered with 404" in result.stdout
