"""A worker as its parent sees it, played by a script that needs no gateway."""

import asyncio
import json
import signal
import socket
import sys

import msgspec
import pytest

from gateway.server import child as module
from gateway.server.child import Child
from gateway.server.messages import Stop, Task

HEAD = """
import json, socket, sys, time
task = json.load(sys.stdin)
control = socket.socket(fileno=task["control"])
lines = control.makefile("r")
def say(kind, **fields):
    control.sendall(json.dumps({"type": kind, **fields}).encode() + b"\\n")
"""
SERVING = 'say("Serving")\n'
UNTIL_TOLD = 'sys.exit(0 if json.loads(lines.readline())["type"] == "Stop" else 9)\n'


def make_task():
    return Task(
        version="1",
        number=3,
        control=-1,
        listener=-1,
        folder="/f",
        config=msgspec.Raw(b"{}"),
        file=None,
        overrides=("a.b=c",),
        wait_upstream=None,
    )


@pytest.fixture
async def start(monkeypatch):
    """Starts a worker that does what the script says."""
    children = []

    async def start(script):
        monkeypatch.setattr(module, "_COMMAND", (sys.executable, "-c", HEAD + script))
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            children.append(await Child.start(make_task(), listener))
        return children[-1]

    yield start
    for child in children:
        child.kill()
        await child.ended()


async def test_it_serves_until_it_is_told_to_stop(start):
    child = await start(SERVING + UNTIL_TOLD)
    assert child.code is None
    assert await child.started(10)
    assert (child.serving, child.served_seconds is None) == (True, False)
    child.tell(Stop(1, "SIGTERM"))
    assert await child.ended() == 0
    assert not child.serving
    child.tell(Stop(2, "SIGTERM"))


async def test_it_is_given_its_task_and_the_socket(start):
    child = await start(
        'listener = socket.socket(fileno=task["listener"])\n'
        'say("Failed", reason=json.dumps([task["number"], task["overrides"], listener.getsockname()[0]]))\n'
    )
    assert not await child.started(10)
    assert json.loads(child.failure) == [3, ["a.b=c"], "127.0.0.1"]
    assert child.code == 0


async def test_its_reason_and_its_exit_code_are_known_when_it_fails(start):
    child = await start('say("Failed", reason="no database")\nsys.exit(2)\n')
    assert not await child.started(10)
    assert (child.failure, child.code, child.served_seconds) == ("no database", 2, None)


async def test_one_that_does_not_come_to_serve_is_killed(start):
    child = await start("time.sleep(1000)\n")
    assert not await child.started(0.2)
    assert (child.code, child.failure) == (-signal.SIGKILL, "it did not serve within 0.2 seconds")


async def test_one_that_speaks_gibberish_is_killed(start):
    child = await start('control.sendall(b"{]\\n")\ntime.sleep(1000)\n')
    assert await child.ended() == -signal.SIGKILL


async def test_one_that_says_no_more_and_does_not_end_is_killed(start, monkeypatch):
    monkeypatch.setattr(module, "_END_SECONDS", 0.1)
    child = await start(SERVING + "lines.close()\ncontrol.close()\ntime.sleep(1000)\n")
    assert await child.ended() == -signal.SIGKILL


async def test_questions_are_answered_whatever_their_order(start):
    child = await start(
        SERVING + "first, second = (json.loads(lines.readline()) for _ in range(2))\n"
        'for ask in (second, first):\n    say("Answer", number=ask["number"], body=ask["about"])\n' + UNTIL_TOLD
    )
    assert await child.started(10)
    metrics, readiness = await asyncio.gather(child.ask("metrics", 10), child.ask("readiness", 10))
    assert (bytes(metrics), bytes(readiness)) == (b'"metrics"', b'"readiness"')


async def test_one_that_does_not_answer_is_not_waited_for_and_not_asked_without_end(start):
    child = await start(SERVING + "lines.readline()\ntime.sleep(1000)\n")
    assert await child.started(10)
    assert await asyncio.gather(*(child.ask("metrics", 0.05) for _ in range(40))) == [None] * 40
    assert len(child._questions) == 16
    asking = asyncio.create_task(child.ask("metrics", 10))
    child.kill()
    assert await asking is None
    await child.ended()
    assert await child.ask("metrics", 10) is None


async def test_a_question_in_flight_ends_with_the_worker(start):
    child = await start(SERVING + "lines.readline()\nsys.exit(4)\n")
    assert await child.started(10)
    assert await child.ask("metrics", 10) is None
    assert await child.ended() == 4


async def test_after_the_socket_was_closed_none_is_started():
    with socket.socket() as listener:
        pass
    with pytest.raises(OSError, match="Bad file descriptor"):
        await Child.start(make_task(), listener)
