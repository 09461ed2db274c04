"""Real servers, over HTTP and over standard input and output: what is listed, called, declined and cancelled."""

import asyncio

import pytest
import pytest_asyncio
from tools.mcp.bench import Bench

pytestmark = pytest.mark.asyncio(loop_scope="module")

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TOOLS = ["add", "say", "fail", "draw", "wait", "told", "meta", "env", "header", "ask", "die"]


@pytest_asyncio.fixture(loop_scope="module", scope="module", params=["http", "stdio"])
async def opened(request, real_server, program):
    """A toolkit with a real server that has listed its tools."""
    bench = Bench()
    server = {"url": real_server.url} if request.param == "http" else program
    kit = bench.open(bench.provider({"docs": server}, call_timeout_seconds=30.0), {})
    kit.listed = await kit.list()
    yield kit
    await bench.close()


async def test_tools_are_listed_and_offered(opened):
    assert opened.listed.error is None
    assert [tool["name"] for tool in opened.listed.tools] == TOOLS
    first = opened.listed.tools[0]
    assert (first["description"], first["annotations"]["readOnlyHint"]) == ("Add two numbers.", True)
    assert first["input_schema"]["required"] == ["a", "b"]
    offered = opened.listed.offered[0]
    assert (offered.kind, offered.name, offered.label) == ("mcp_call", "add", "docs")
    assert offered.function["name"] == "mcp__docs__add"
    assert offered.function["parameters"] == first["input_schema"]


async def test_what_tools_return_becomes_text(opened):
    added = await opened.call("add", {"a": 1, "b": 2})
    assert (added.output, added.failed, added.fields["status"]) == ("3", False, "completed")
    assert (await opened.call("say", {"text": "h\u00e9\u2028"})).output == "h\u00e9\u2028"
    drawn = await opened.call("draw")
    assert drawn.output == "Look:\n[image, image/png, 5 bytes, not shown]"


async def test_a_tool_that_fails_tells_the_model(opened):
    failed = await opened.call("fail", {"reason": "x"})
    assert failed.failed
    assert failed.fields["status"] == "failed"
    assert failed.fields["output"] is None
    assert failed.fields["error"]["content"][0]["text"] == failed.output == "Error executing tool fail: x"
    wrong = await opened.call("add", {"a": "no number"})
    assert wrong.failed
    assert "Error executing tool add" in wrong.output or "validation" in wrong.output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("{", "not valid JSON"),
        ("[]", "not a JSON object"),
        ("3", "object"),
        ('{"a": "\\ud800"}', "half a character"),
        ('{"\\ud800": 1}', "half a character"),
        ('{"a":' * 65 + "1" + "}" * 65, "more than 64 levels"),
    ],
)
async def test_arguments_that_are_no_object_are_not_sent(opened, arguments, why):
    result = await opened.call("say", arguments)
    assert result.failed
    assert why in result.output
    assert "docs" in result.output
    assert (await opened.call("say", {"text": "well"})).output == "well"


async def test_no_arguments_are_an_empty_object(opened):
    assert not (await opened.call("told", "")).failed


async def test_a_tool_that_is_not_offered_is_not_called(opened):
    result = await opened.call("nothing")
    assert result.output == "The MCP server 'docs' offers no tool 'nothing' to this response."


@pytest.mark.checklist(212)
async def test_trace_context_goes_into_meta(opened):
    assert (await opened.call("meta", traceparent=TRACE)).output == TRACE


@pytest.mark.checklist(213)
async def test_questions_of_the_server_are_declined(opened):
    assert (await opened.call("ask")).output == "declined: Sampling not supported"


@pytest.mark.checklist(212)
async def test_cancelling_a_call_tells_the_server(opened):
    async def tells(what):
        return (await opened.call("told")).output.count(what)

    waiting, cancelled = await tells("waiting"), await tells("cancelled")
    task = asyncio.create_task(opened.call("wait"))
    async with asyncio.timeout(20):
        while await tells("waiting") == waiting:
            await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(20):
        while await tells("cancelled") == cancelled:
            await asyncio.sleep(0.01)
    assert await tells("cancelled") == cancelled + 1
