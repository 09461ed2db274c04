"""Sessions: kept for configured servers and each caller, opened for a response otherwise, replaced when they die."""

import asyncio

import pytest
from tools.mcp.bench import reply, send

TOOL = {"name": "say", "inputSchema": {"type": "object"}}


@pytest.fixture
def listed(raw):
    raw.list_tools(TOOL)
    raw.return_({"content": [{"type": "text", "text": "ok"}]})
    return raw


def begun(raw) -> int:
    return raw.methods.count("initialize")


async def use(bench, provider, tool=None, **context) -> None:
    kit = bench.open(provider, tool or {}, **context)
    assert (await kit.list()).error is None
    assert (await kit.call("say")).output == "ok"
    await kit.close()
    await kit.close()


@pytest.mark.checklist(208)
async def test_a_configured_server_keeps_its_session_for_each_caller(listed, bench):
    provider = bench.provider({"docs": {"url": listed.url}})
    for principal in ("ada", "ada", "bob", "ada"):
        await use(bench, provider, principal=principal)
    assert begun(listed) == 2
    assert "DELETE" not in listed.methods
    assert bench.metrics.mcp_sessions.now == 2
    await provider.close()
    assert bench.metrics.mcp_sessions.now == 0


async def test_what_a_request_brings_ends_with_its_response(listed, bench):
    async def begin(message, writer):
        info = {"name": "raw", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info}
        await reply(writer, message, result, "mcp-session-id: s1")

    listed.answers["initialize"] = begin
    provider = bench.provider({"docs": {"url": listed.url}})
    await use(bench, provider, {"server_url": listed.url})
    await use(bench, provider, {"authorization": "a token of the caller's own"})
    await use(bench, provider, {"authorization": "a token of the caller's own"})
    assert begun(listed) == 3
    await provider.close()
    assert listed.methods.count("DELETE") == 3
    assert bench.metrics.mcp_sessions.now == 0
    assert {
        headers.get("mcp-session-id") for message, headers in listed.messages if message["method"] == "tools/call"
    } == {"s1"}


@pytest.mark.checklist(208)
async def test_idle_sessions_are_bounded_in_number_and_time(listed, bench):
    provider = bench.provider({"docs": {"url": listed.url}}, max_idle_sessions=1)
    await use(bench, provider, principal="ada")
    await use(bench, provider, principal="bob")
    await use(bench, provider, principal="bob")
    assert begun(listed) == 2
    await use(bench, provider, principal="ada")
    assert begun(listed) == 3
    provider = bench.provider({"docs": {"url": listed.url}}, session_idle_seconds=0.02)
    await use(bench, provider)
    while bench.metrics.mcp_sessions.now:
        await asyncio.sleep(0.01)
    await use(bench, provider)
    assert begun(listed) == 5


@pytest.mark.checklist(208)
async def test_a_session_that_was_idle_is_asked_for_a_sign_of_life(listed, bench):
    provider = bench.provider({"docs": {"url": listed.url}}, session_check_seconds=0.0)
    await use(bench, provider)
    assert listed.methods.count("ping") == 1  # before the call, for the listing opened it
    listed.answers["ping"] = lambda message, writer: send(writer, 500, b"")
    await use(bench, provider)
    assert begun(listed) >= 2


@pytest.mark.checklist(208)
async def test_a_session_the_server_has_forgotten_is_opened_again(listed, bench):
    forgotten = False

    async def begin(message, writer):
        info = {"name": "raw", "version": "1"}
        result = {"protocolVersion": "2025-06-18", "capabilities": {}, "serverInfo": info}
        await reply(writer, message, result, f"mcp-session-id: s{begun(listed)}")

    async def answer(message, writer):
        if forgotten and listed.messages[-1][1]["mcp-session-id"] == "s1":
            await send(writer, 404, b"")
        else:
            await reply(writer, message, {"content": [{"type": "text", "text": "ok"}]})

    listed.answers.update({"initialize": begin, "tools/call": answer})
    provider = bench.provider({"docs": {"url": listed.url}})
    await use(bench, provider)
    forgotten = True
    kit = bench.open(provider, {}, items=[{"type": "mcp_list_tools", "server_label": "docs", "tools": [TOOL]}])
    assert kit.toolkit.listings == []
    assert (await kit.call("say")).output == "ok"
    assert begun(listed) == 2


@pytest.mark.checklist(214)
async def test_a_listing_in_the_conversation_is_not_asked_for_again(listed, bench):
    provider = bench.provider({"docs": {"url": listed.url}})
    item = {"type": "mcp_list_tools", "server_label": "docs", "tools": [{"name": "say", "input_schema": {}}]}
    kit = bench.open(provider, {}, items=[item])
    assert [tool.name for tool in kit.toolkit.offered] == ["say"]
    assert kit.toolkit.listings == []
    assert (await kit.call("say")).output == "ok"
    assert "tools/list" not in listed.methods


async def test_calls_at_once_open_one_session(listed, bench):
    provider = bench.provider({"docs": {"url": listed.url}})
    kits = [bench.open(provider, {}) for _ in range(5)]
    assert all(one.error is None for one in await asyncio.gather(*(kit.list() for kit in kits)))
    assert begun(listed) == 1


async def test_a_provider_that_is_closed_opens_nothing(listed, bench):
    provider = bench.provider({"docs": {"url": listed.url}})
    kit = bench.open(provider, {})
    await provider.close()
    assert "the gateway is stopping" in (await kit.list()).error


async def test_an_end_while_a_session_is_opened_leaves_nothing(listed, bench):
    asked = asyncio.Event()

    async def wait(message, writer):
        asked.set()
        await asyncio.sleep(60)

    listed.answers["initialize"] = wait
    kit = bench.open(bench.provider(), {"server_url": listed.url})
    task = asyncio.create_task(kit.list())
    await asked.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    await kit.close()
    while bench.metrics.mcp_sessions.now:
        await asyncio.sleep(0.01)
