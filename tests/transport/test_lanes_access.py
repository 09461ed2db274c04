"""Callers who may go on, or no more, on a WebSocket that is open."""

import asyncio

import pytest
from engine.doubles import settle, streamed
from harness.engine import says
from transport.client_socket import converse, expect_sound, held

from gateway.protocol.errors import Unauthorized


class Standing:
    """Whether the caller may start anything."""

    def __init__(self):
        self.counts = True

    def __call__(self):
        if not self.counts:
            raise Unauthorized("No more.", code="invalid_token")


@pytest.fixture
def standing():
    return Standing()


def expect_refusal(frames, lane=None):
    (frame,) = frames
    assert (frame["type"], frame["status"], frame["error"]["code"]) == ("error", 401, "invalid_token")
    assert frame.get("stream_id") == lane


@pytest.mark.parametrize("lane", [None, "a"])
@pytest.mark.checklist(6)
async def test_a_create_is_refused_and_what_runs_goes_on(standing, lane):
    """A credential that expires on an open WebSocket is told at the next create and touches no running work."""
    gate = asyncio.Event()
    async with converse(check_caller=standing) as talk:
        talk.create(held(gate), lane="running")
        await talk.begun("running")
        standing.counts = False
        talk.create(lane=lane)
        expect_refusal(await talk.ended(lane), lane)
        gate.set()
        expect_sound(await talk.ended("running"), "running", "Hello there")
        assert len(talk.bench.upstream.calls) == 1


async def test_a_create_that_waited_is_refused_when_its_turn_comes(standing):
    gate = asyncio.Event()
    async with converse(check_caller=standing) as talk:
        talk.create(held(gate), lane="a")
        await talk.begun("a")
        talk.create(lane="a")
        await settle()
        standing.counts = False
        gate.set()
        expect_sound(await talk.ended("a"), "a", "Hello there")
        expect_refusal(await talk.ended("a", 2), "a")
        assert len(talk.bench.upstream.calls) == 1


async def test_a_refused_create_evicts_nothing(standing):
    gate = asyncio.Event()
    async with converse(check_caller=standing) as talk:
        first = await talk.told(streamed(says("1")), lane="a", store=False)
        standing.counts = False
        talk.create(lane="a", previous_response_id=first, store=False)
        expect_refusal(await talk.ended("a", 2), "a")
        standing.counts = True
        talk.create(held(gate), lane="b", previous_response_id=first, store=False)
        await talk.begun("b")
        talk.create(lane="b", previous_response_id=first, store=False)
        await settle()
        standing.counts = False
        gate.set()
        await talk.ended("b")
        expect_refusal(await talk.ended("b", 2), "b")
        standing.counts = True
        await talk.told(streamed(says("2")), lane="a", previous_response_id=first, store=False)
