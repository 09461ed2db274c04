"""MCP servers to use: real ones, made with the SDK, and a raw one whose every byte a test decides."""

import sys
from pathlib import Path

import pytest
from tools.mcp.bench import Bench, RawServer, RealServer

SCRIPT = Path(__file__).with_name("real_server.py")


@pytest.fixture(scope="package")
def real_server():
    """The URL of a real server over HTTP, a process for all tests of this folder."""
    server = RealServer(SCRIPT)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="package")
def program() -> dict:
    """The keys of a real server over standard input and output."""
    return {"command": sys.executable, "args": (str(SCRIPT), "stdio")}


@pytest.fixture
async def raw():
    server = RawServer()
    await server.start()
    yield server
    await server.close()


@pytest.fixture
async def bench():
    made = Bench()
    yield made
    await made.close()
