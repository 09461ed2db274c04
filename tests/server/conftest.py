import asyncio
import json
import os
import re
from contextlib import asynccontextmanager

import httpx
import pytest
from harness.forked import ForkedProcess
from server import tiny

PATIENCE = 40


class PipedProcess:
    """A forked process whose outputs are read, with as much of `asyncio.subprocess.Process` as the tests use."""

    def __init__(self, forked, stdout, stderr):
        self.stdout, self.stderr = stdout, stderr
        self._forked = forked

    @classmethod
    async def start(cls, act, *arguments):
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        forked = ForkedProcess(act, arguments, os.environ, out_end, err_end)
        os.close(out_end)
        os.close(err_end)
        return cls(forked, await read_pipe(out), await read_pipe(err))

    @property
    def returncode(self):
        return self._forked.poll()

    def send_signal(self, number):
        self._forked.send_signal(number)

    def kill(self):
        self._forked.kill()

    async def communicate(self):
        outputs = await asyncio.gather(self.stdout.read(), self.stderr.read())
        await asyncio.to_thread(self._forked.wait, PATIENCE)
        return outputs


async def read_pipe(descriptor):
    reader = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0)
    )
    return reader


class Running:
    """A started gateway process."""

    def __init__(self, process):
        self.process = process
        self.start_line = ""

    @property
    def url(self):
        return re.search(r"on (http://\S+)", self.start_line)[1]

    @property
    def admin_url(self):
        return re.search(r"admin (http://[^)]+)", self.start_line)[1]

    @property
    def address(self):
        host, port = self.url.removeprefix("http://").split(":")
        return host, int(port)

    def signal(self, number):
        self.process.send_signal(number)

    async def end(self):
        """Wait for the exit; return its code and everything written to stderr."""
        _, errors = await asyncio.wait_for(self.process.communicate(), PATIENCE)
        return self.process.returncode, errors.decode()

    @asynccontextmanager
    async def stream(self, chunks, interval, more="lingers=0"):
        """Open a stream and wait for its first chunk; yields an iterator over the following lines."""
        async with (
            httpx.AsyncClient(base_url=self.url, timeout=PATIENCE) as client,
            client.stream("POST", f"/v1/responses?chunks={chunks}&interval={interval}&{more}") as answer,
        ):
            lines = answer.aiter_lines()
            assert await anext(lines) == "0"
            yield lines


@pytest.fixture
async def launch():
    """Start gateway processes with a toy engine; none outlives the test."""
    processes = []

    async def launch(wait=True, **options):
        process = await PipedProcess.start(tiny.main, json.dumps(options))
        processes.append(process)
        running = Running(process)
        if wait:
            running.start_line = (await asyncio.wait_for(process.stdout.readline(), PATIENCE)).decode()
        return running

    yield launch
    for process in processes:
        if process.returncode is None:
            process.kill()
            await process.communicate()
