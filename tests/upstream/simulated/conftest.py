import json
from contextlib import asynccontextmanager

import aiohttp
import pytest


@pytest.fixture
def parse_events():
    """Return a reader of whole event streams that splits at line feeds alone."""

    def parse(raw: bytes) -> list[dict]:
        events = []
        for block in raw.decode().split("\n\n")[:-1]:
            name, data = block.split("\n")
            event = json.loads(data.removeprefix("data: "))
            assert name == f"event: {event['type']}"
            events.append(event)
        return events

    return parse


@pytest.fixture
def ask(simulator):
    """Return a context manager around one create request."""

    @asynccontextmanager
    async def post(model: str = "sim", *, input: object = "hi there", **more):
        body = {"model": model, "input": input, **more}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{simulator.url}/v1/responses", json=body) as response,
        ):
            yield response

    return post


@pytest.fixture
def stream(ask, parse_events):
    """Return a caller that gives back the events of one streamed answer."""

    async def collect(model: str = "sim", **more) -> list[dict]:
        async with ask(model, stream=True, **more) as response:
            assert response.status == 200
            return parse_events(await response.read())

    return collect


@pytest.fixture
def create(ask):
    """Return a caller that gives back status and JSON body."""

    async def collect(model: str = "sim", **more) -> tuple[int, dict]:
        async with ask(model, **more) as response:
            return response.status, await response.json()

    return collect
