import asyncio
import re
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from cassette.provider import Provider, provided
from click.testing import CliRunner

from gateway.cassette.format import load_cassette
from gateway.cli import record, replay


@contextmanager
def serving(provider: Provider):
    """Serve a provider in a thread, for commands that run a loop of their own."""
    loop, found, stop = asyncio.new_event_loop(), [], asyncio.Event()
    ready = threading.Event()

    async def serve():
        async with provided(provider) as url:
            found.append(url)
            ready.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        assert ready.wait(20)
        yield found[0]
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(10)
        loop.close()


def run(command, *arguments):
    return CliRunner().invoke(command, [str(argument) for argument in arguments])


@pytest.mark.agents(135, 136, 139)
def test_from_a_recording_to_its_replay(tmp_path):
    path, key = tmp_path / "r1.jsonl", tmp_path / "key"
    key.write_text("sk-live-from-a-file\n")
    with serving(Provider()) as url:
        told = run(record.command, "--scenario", "R1", "--url", url, "--model", "sim", "--out", path, "--key-file", key)
        assert told.exit_code == 0, told.output
        assert f"{path}: R1, 1 session(s)" in told.stdout
        assert "R1 < response.inject.created" in told.stderr
        assert "sk-live" not in path.read_text() + told.output
        again = run(replay.command, path, "--url", url, "--compare", "texts", "--out", tmp_path / "again.jsonl")
        assert again.exit_code == 0, again.output
        assert "A11 ok" in again.stdout
        assert "=   ok" in again.stdout
    checked = run(replay.command, path, "--check")
    assert checked.exit_code == 0
    assert "A10 ok" in checked.stdout
    assert load_cassette(tmp_path / "again.jsonl").is_intact
    there, back = tmp_path / "r1.yaml", tmp_path / "back.jsonl"
    assert run(record.command, "convert", path, there).exit_code == 0
    assert run(record.command, "convert", there, back).exit_code == 0
    assert back.read_bytes() == path.read_bytes()
    assert run(replay.command, there, "--check").exit_code == 0
    refused = run(record.command, "convert", there, back)
    assert (refused.exit_code, "--force" in refused.output) == (1, True)


def test_several_scenarios_go_into_a_folder_and_one_that_fails_is_told(tmp_path):
    with serving(Provider(ends_after=0)) as url:
        arguments = ["--url", url, "--out", tmp_path / "all", "--quiet"]
        told = run(record.command, "--scenario", "R1", "--scenario", "R5", *arguments)
    assert told.exit_code == 1
    assert "R5: the response ended before a sibling wrote anything" in told.stderr
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == ["R1.jsonl", "R5.jsonl"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_recording_that_is_stopped_has_its_end(number, tmp_path):
    path = tmp_path / "r.jsonl"
    code = """
import signal, sys
from gateway.cli.main import main
signal.signal(signal.SIGINT, signal.default_int_handler)
main(sys.argv[1:])
"""
    with serving(Provider()) as url:
        arguments = ["record", "--scenario", "R2", "--url", url, "--out", str(path)]
        command = [sys.executable, "-c", code, *arguments]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            # Nobody answers the second call, so the scenario waits after this.
            assert any("response.inject.created" in line for line in process.stderr)
            process.send_signal(number)
            _, told = process.communicate(timeout=40)
    assert process.returncode == 1
    assert told.endswith("error: stopped\n")
    assert load_cassette(path).is_intact


def test_nobody_there(tmp_path):
    path = tmp_path / "r.jsonl"
    told = run(record.command, "--scenario", "R8", "--url", "ws://127.0.0.1:9", "--out", path)
    assert told.exit_code == 1
    assert "error: R8: " in told.stderr
    assert load_cassette(path).is_complete
    again = run(record.command, "--scenario", "R8", "--url", "ws://127.0.0.1:9", "--out", path)
    assert "--force" in again.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--scenario or --all is missing"),
        (["--all"], "--url is missing"),
        (["--all", "--url", "ws://x"], "--out is missing"),
        (["--all", "--url", "ftp://x"], "not a URL"),
        (["--all", "--url", "ws://x:99999"], "0 and 65535"),
        (["--scenario", "R99"], "R99"),
        (["--all", "--url", "ws://x", "--out", "y", "--timeout", "0s"], "above 0"),
        (["--all", "--url", "ws://x", "--out", "y", "--key-file", "KEY"], "clear text"),
        (["--all", "--url", "wss://x", "--out", "y", "--key-file", "EMPTY"], "holds no key"),
        (["--all", "--url", "wss://x", "--out", "y", "--key-file", "nowhere"], "No such file"),
        (["--all", "--url", "wss://x", "--out", "y", "--ca-file", "EMPTY"], "no certificates"),
    ],
)
def test_wrong_usage(arguments, told, tmp_path):
    (tmp_path / "KEY").write_text("k")
    (tmp_path / "EMPTY").write_text("")
    files = {"KEY": tmp_path / "KEY", "EMPTY": tmp_path / "EMPTY"}
    result = run(record.command, *[files.get(argument, argument) for argument in arguments])
    assert result.exit_code == 2
    assert told in " ".join(result.output.replace("│", " ").split())


def test_list():
    assert run(record.command, "--list").stdout.splitlines()[0] == "R1   two children, outputs at once"


def test_what_is_no_recording(tmp_path):
    path = tmp_path / "no.jsonl"
    path.write_text("{}\n")
    for result in (run(record.command, "convert", path, tmp_path / "x.yaml"), run(replay.command, path, "--check")):
        assert result.exit_code in {1, 2}
        assert "line 1" in result.output


def test_a_changed_and_a_killed_recording(tmp_path):
    path = tmp_path / "r.jsonl"
    with serving(Provider()) as url:
        run(record.command, "--scenario", "R8", "--url", url, "--out", path)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    killed = run(replay.command, path, "--check")
    assert (killed.exit_code, "was killed" in killed.stdout) == (0, True)
    path.write_bytes(b"".join([lines[0].replace(b"R8", b"R1"), *lines[1:]]))
    changed = run(replay.command, path, "--check")
    assert (changed.exit_code, "was changed" in changed.stderr) == (1, True)


def test_a_file_that_is_not_there(tmp_path):
    path = tmp_path / "nowhere.jsonl"
    for result in (run(record.command, "convert", path, tmp_path / "x.yaml"), run(replay.command, path, "--check")):
        assert result.exit_code in {1, 2}
        assert "No such file" in " ".join(result.output.split())


def test_a_recording_is_served_until_it_is_told_to_stop(tmp_path):
    path = tmp_path / "r.jsonl"
    with serving(Provider()) as url:
        run(record.command, "--scenario", "R8", "--url", url, "--model", "sim", "--out", path)
    code = "import sys; from gateway.cli.main import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", code, "replay", str(path), "--serve", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        found = re.search(r"http://127\.0\.0\.1:(\d+)", process.stdout.readline())
        again = run(replay.command, path, "--url", found[0])
        taken = run(replay.command, path, "--serve", found[1])
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=40)
    assert (again.exit_code, process.returncode) == (0, 0)
    assert (taken.exit_code, "choose another port" in taken.stderr) == (1, True)


def test_one_thing_at_a_time(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text("")
    for arguments in ([], ["--check", "--serve", "0"]):
        assert "say one of" in run(replay.command, path, *arguments).output
