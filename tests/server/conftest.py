import asyncio
import json
import re
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

PATIENCE = 40
TINY = Path(__file__).with_name("tiny.py")


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
        process = await asyncio.create_subprocess_exec(
            sys.executable, TINY, json.dumps(options), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
        )
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
