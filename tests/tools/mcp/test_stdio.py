"""Programs that serve MCP: what they get, what they do wrong, and how they end."""

import asyncio
import logging
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from gateway.config.secret import Secret
from gateway.tools.mcp import stdio
from gateway.tools.mcp.targets import Program

SCRIPT = str(Path(__file__).with_name("small_server.py"))


def server(mode: str = "well", *arguments: str, **keys) -> dict:
    return {"docs": {"command": sys.executable, "args": (SCRIPT, mode, *arguments), **keys}}


@pytest.mark.checklist(202, 210)
async def test_a_program_gets_few_variables_and_its_secrets_are_not_repeated(bench, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "gateway.mcp")
    monkeypatch.setenv("GATEWAY_SECRET", "s3cret")
    monkeypatch.setenv("PASSED", "yes")
    keys = {"env": {"OWN": Secret("0wn-s3cret")}, "env_pass": ("PASSED", "ABSENT")}
    kit = bench.open(bench.provider(server(**keys)), {})
    await kit.list()
    names = set((await kit.call("env")).output.split(","))
    assert {"OWN", "PASSED", "PATH"} <= names <= {"OWN", "PASSED", "PATH", "HOME", "LANG", "TMPDIR", "LC_CTYPE"}
    assert (await kit.call("say", {"text": "it is 0wn-s3cret!"})).output == "it is ***!"
    assert "MCP server says: starting, with no-secret and ***" in caplog.text


async def test_a_secret_is_found_however_its_line_is_cut(caplog):
    caplog.set_level(logging.INFO, "gateway.mcp")
    complaints = asyncio.StreamReader()
    program = Program(label="docs", command=(), env={"OWN": "0wn-s3cret"}, env_pass=(), cwd=None)
    task = asyncio.create_task(stdio._log(SimpleNamespace(stderr=complaints), program))
    for part in (b"x" * 494 + b"0wn-s3cret\n", b"with 0wn-", b"s3cret\n", b"y" * 1_000_000, b"\nend\n"):
        complaints.feed_data(part)
        await asyncio.sleep(0)
    complaints.feed_eof()
    await task
    said = [record.getMessage().removeprefix("MCP server says: ") for record in caplog.records]
    assert said == ["x" * 494 + "***", "with ***", "y" * 500, "end"]


async def test_a_program_that_ends_fails_its_call_and_is_started_again(bench, monkeypatch):
    monkeypatch.setattr("gateway.tools.mcp.pool._FIRST_BACKOFF", 20.0)
    provider = bench.provider(server())
    kit = bench.open(provider, {})
    await kit.list()
    assert (await kit.call("die")).output == "The MCP server 'docs' ended by itself."
    assert re.search(r"it is tried again in [12]\d\.\d s", (await kit.call("say", {"text": "x"})).output)
    (kept,) = provider._pool._kept.values()
    kept.retry_at = 0.0  # its rest is over
    assert (await kit.call("say", {"text": "x"})).output == "x"
    assert bench.count("mcp_faults_total", method="tools/call") == 2


@pytest.mark.checklist(207)
async def test_a_line_is_counted_while_it_is_read(bench, monkeypatch):
    monkeypatch.setattr("gateway.tools.mcp.pool._FIRST_BACKOFF", 0.0)
    monkeypatch.setattr(stdio, "_GRACE_SECONDS", 0.1)
    kit = bench.open(bench.provider(server(), max_message_bytes=4096), {})
    await kit.list()
    shouted = await kit.call("shout")
    assert shouted.output == "The MCP server 'docs' sent a message above 4096 bytes."
    assert bench.count("rejections_total", key="mcp.max_message_bytes") == 1
    assert (await kit.call("say", {"text": "x"})).output == "x"


async def test_what_a_program_lists_is_counted_too(bench):
    kit = bench.open(bench.provider(server("long"), max_discovery_bytes=4096), {})
    assert "lists more than all servers of a request may together, 4096 bytes" in (await kit.list()).error


@pytest.mark.checklist(202)
async def test_a_program_ends_with_the_gateway_and_all_that_it_started(bench, tmp_path, monkeypatch):
    monkeypatch.setattr(stdio, "_GRACE_SECONDS", 0.1)
    pids = tmp_path / "pids"
    # A shell is up long before the limit, however slow the machine.
    mute = 'trap "" TERM; sleep 60 & echo $$ $! >"$0"; wait'
    provider = bench.provider({"docs": {"command": "sh", "args": ("-c", mute, str(pids))}}, connect_timeout_seconds=1.0)
    kit = bench.open(provider, {})
    listing = asyncio.create_task(kit.list())
    while not pids.exists() or len(pids.read_text().split()) < 2:
        await asyncio.sleep(0.01)
    assert (await listing).error == "The MCP server 'docs' did not agree on the protocol within 1 s."
    assert bench.count("rejections_total", key="mcp.connect_timeout_seconds") == 1
    await kit.close()
    await provider.close()
    # A child of the program is nobody's to wait for: the system ends it a moment after the signal.
    async with asyncio.timeout(10):
        while any(_runs(pid) for pid in pids.read_text().split()):
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("command", ["/nowhere/at/all", "\0"])
async def test_a_program_that_cannot_be_started_is_a_failed_listing(bench, command):
    kit = bench.open(bench.provider({"docs": {"command": command}}), {})
    assert "could not be started" in (await kit.list()).error


async def test_one_program_serves_all_callers(bench):
    provider = bench.provider(server())
    for principal in ("ada", "bob"):
        kit = bench.open(provider, {}, principal=principal)
        await kit.list()
        await kit.close()
    assert bench.metrics.mcp_sessions.high == 1


async def test_what_cannot_be_sent_leaves_the_program_to_the_others(bench):
    provider = bench.provider(server())
    ada, bob = bench.open(provider, {}, principal="ada"), bench.open(provider, {}, principal="bob")
    await ada.list()
    await bob.list()
    assert "half a character" in (await ada.call("say", '{"text": "\\ud800"}')).output
    assert (await bob.call("say", {"text": "well"})).output == "well"


async def test_headers_cannot_be_sent_to_a_program(bench):
    with pytest.raises(Exception, match="is a program of the gateway's"):
        bench.open(bench.provider(server()), {"authorization": "x"})


def _runs(pid: str) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"
