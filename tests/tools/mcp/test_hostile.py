"""Servers that do what no server should: each is a failed listing or call, in time and within bounds."""

import asyncio
import json

import pytest
from tools.mcp.bench import event, open_stream, reply, send

TOOL = {"name": "say", "inputSchema": {"type": "object"}}
BIG = 64 * 1024


@pytest.fixture
def kit(raw, bench):
    """A toolkit with the raw server, which lists one tool."""
    raw.list_tools(TOOL)
    raw.return_({"content": [{"type": "text", "text": "ok"}]})
    keys = {"max_message_bytes": BIG, "max_stream_bytes": 2 * BIG, "call_timeout_seconds": 30.0}
    made = bench.open(bench.provider(**keys), {"server_url": raw.url})
    made.raw, made.bench = raw, bench
    return made


async def answer_whole(writer, message, body: bytes, *headers: str, status: int = 200) -> None:
    await send(writer, status, body, *headers)


# ---------------------------------------------------------------- answers of calls


def result(message: dict, text: str = "ok", **more) -> dict:
    return {"jsonrpc": "2.0", "id": message["id"], "result": {"content": [{"type": "text", "text": text}], **more}}


async def too_large(message, writer):
    await reply(writer, message, {"content": [{"type": "text", "text": "x" * 2 * BIG}]})


async def endless_body(message, writer):
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def endless_event(message, writer):
    await open_stream(writer)
    writer.write(b"data: ")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


async def endless_progress(message, writer):
    await open_stream(writer)
    told = {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 1, "progress": 1}}
    while True:
        writer.write(event(told) * 100)
        await writer.drain()


async def invalid_utf8(message, writer):
    await send(writer, 200, b'{"jsonrpc":"2.0","id":100,"result":{"a":"\xff"}}', "content-type: application/json")


async def no_json(message, writer):
    await send(writer, 200, b"<html>", "content-type: application/json")


async def no_protocol(message, writer):
    await send(writer, 200, b'{"hello": 1}', "content-type: application/json")


async def html(message, writer):
    await send(writer, 200, b"<html>", "content-type: text/html")


async def broken_off(message, writer):
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
    writer.close()


async def hung_up(message, writer):
    writer.close()


async def stream_without_result(message, writer):
    await open_stream(writer)
    writer.close()


async def compressed(message, writer):
    await send(writer, 200, b"\x1f\x8b", "content-type: application/json", "content-encoding: gzip")


async def redirects(message, writer):
    await send(writer, 307, b"", "location: /elsewhere")


async def redirects_inside(message, writer):
    await send(writer, 302, b"", "location: http://169.254.169.254/latest/meta-data")


async def unauthorized(message, writer):
    await send(writer, 401, b'{"error": "the token s3cret-token is wrong"}', "content-type: application/json")


async def broken(message, writer):
    await send(writer, 500, b"x" * 10_000_000)


async def accepted(message, writer):
    await send(writer, 202, b"")


async def refused(message, writer):
    error = {"code": -32602, "message": "Unknown tool: say"}
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
    await send(writer, 200, body, "content-type: application/json")


async def asks_for_input(message, writer):
    await reply(writer, message, {"resultType": "input_required", "inputRequests": {}})


@pytest.mark.checklist(207, 209, 211)
@pytest.mark.parametrize(
    ("answer", "why", "bound"),
    [
        (too_large, "sent a message above 65536 bytes", "mcp.max_message_bytes"),
        (endless_body, "sent a message above 65536 bytes", "mcp.max_message_bytes"),
        (endless_event, "sent a message above 65536 bytes", "mcp.max_message_bytes"),
        (endless_progress, "sent more than 131072 bytes for one call", "mcp.max_stream_bytes"),
        (invalid_utf8, "gave an answer that is not of the protocol", None),
        (no_json, "gave an answer that is not of the protocol", None),
        (no_protocol, "gave an answer that is not of the protocol", None),
        (html, "refused: Unexpected content type: text/html", None),
        (broken_off, "broke off its answer", None),
        (hung_up, "broke off the connection before it answered", None),
        (stream_without_result, "ended the session, or broke off its answer", None),
        (compressed, "compressed its answer", None),
        (redirects, "redirects elsewhere, which is not followed", None),
        (redirects_inside, "redirects elsewhere, which is not followed", None),
        (unauthorized, "answered with HTTP status 401", None),
        (broken, "answered with HTTP status 500", None),
        (accepted, "refused: server answered a request with 202", None),
        (refused, "refused: Unknown tool: say", None),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_bad_answer_fails_its_call_and_nothing_else(kit, answer, why, bound):
    await kit.list()
    good = kit.raw.answers["tools/call"]
    kit.raw.answers["tools/call"] = answer
    failed = await kit.call("say")
    assert failed.failed
    assert f"The MCP server 'docs' {why}" in failed.output
    assert failed.fields["error"]["content"][0]["text"] == failed.output
    assert failed.size < 3000
    if bound is not None:
        assert kit.bench.count("rejections_total", key=bound) == 1
    kit.raw.answers["tools/call"] = good
    assert (await kit.call("say")).output == "ok"
    assert kit.raw.methods.count("initialize") == 1


async def test_a_server_that_asks_for_input_gets_none(kit):
    await kit.list()
    kit.raw.answers["tools/call"] = asks_for_input
    assert (await kit.call("say")).output == "The tool returned nothing."


@pytest.mark.parametrize("silent", [False, True], ids=["answered", "unanswered"])
async def test_what_a_server_asks_is_answered_one_by_one(kit, silent):
    """A stream has room for a hundred thousand questions."""
    await kit.list()
    asked, most, over = 100, 0, asyncio.Event()

    async def take(message, writer):
        nonlocal most
        most = max(most, len(asyncio.all_tasks()))
        await (over.wait() if silent else send(writer, 202, b""))

    async def ask(message, writer):
        await open_stream(writer)
        for number in range(asked):
            writer.write(event({"jsonrpc": "2.0", "id": f"q{number}", "method": "ping"}))
        writer.write(event(result(message)))
        await writer.drain()
        await over.wait()

    kit.raw.answers |= {"": take, "tools/call": ask}
    call = asyncio.create_task(kit.call("say"))
    if silent:
        while not most:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # all of it has arrived
        most = max(most, len(asyncio.all_tasks()))
        call.cancel()
        await asyncio.wait([call])
    else:
        assert (await call).output == "ok"
    over.set()
    # The last answer may still be on its way.
    assert kit.raw.methods.count("") in ({1} if silent else {asked - 1, asked})
    assert most < 30


async def drips(message, writer):
    writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.01)


async def silent(message, writer):
    await asyncio.sleep(60)


async def answers_others(message, writer):
    await reply(writer, {"id": 424242}, {})
    await asyncio.sleep(60)


@pytest.mark.checklist(211)
@pytest.mark.parametrize("answer", [drips, silent, answers_others], ids=lambda value: value.__name__)
@pytest.mark.parametrize("method", ["initialize", "tools/list", "tools/call"])
async def test_a_server_that_never_comes_to_an_end_fails_in_time(raw, bench, method, answer):
    raw.list_tools(TOOL)
    raw.answers[method] = answer
    key = {"initialize": "connect", "tools/list": "list", "tools/call": "call"}[method]
    kit = bench.open(bench.provider(**{f"{key}_timeout_seconds": 0.15}), {"server_url": raw.url})
    listed = await kit.list()
    told = listed.error or (await kit.call("say")).output
    did_not = {"initialize": "agree on the protocol", "tools/list": "list its tools", "tools/call": "answer"}
    assert told == f"The MCP server 'docs' did not {did_not[method]} within 0.15 s."
    assert bench.count("rejections_total", key=f"mcp.{key}_timeout_seconds") == 1


async def test_a_call_that_is_given_up_leaves_no_connection_open(kit):
    await kit.list()
    closed = asyncio.Event()

    async def watch(message, writer):
        await writer.wait_closed()
        closed.set()

    kit.raw.answers["tools/call"] = watch
    task = asyncio.create_task(kit.call("say"))
    while "tools/call" not in kit.raw.methods:
        await asyncio.sleep(0.01)
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    while "notifications/cancelled" not in kit.raw.methods:
        await asyncio.sleep(0.01)


# ---------------------------------------------------------------- discovery


@pytest.mark.checklist(207)
async def test_100_000_tools_are_not_read(raw, bench):
    raw.list_tools(*({"name": f"tool{number}", "inputSchema": {}} for number in range(100_000)))
    kit = bench.open(bench.provider(), {"server_url": raw.url})
    listed = await kit.list()
    assert "lists more than all servers of a request may together, 1048576 bytes" in listed.error or (
        "sent a message above 1048576 bytes" in listed.error
    )
    assert (listed.tools, listed.offered, listed.size) == ((), (), 0)


async def test_pages_are_read_up_to_the_last(raw, bench):
    pages = {None: ("a", "2"), "2": ("b", "3"), "3": ("c", None)}

    async def answer(message, writer):
        name, cursor = pages[message.get("params", {}).get("cursor")]
        more = {"nextCursor": cursor} if cursor else {}
        await reply(writer, message, {"tools": [{**TOOL, "name": name}], **more})

    raw.answers["tools/list"] = answer
    kit = bench.open(bench.provider(), {"server_url": raw.url})
    assert [tool["name"] for tool in (await kit.list()).tools] == ["a", "b", "c"]


@pytest.mark.checklist(207)
@pytest.mark.parametrize(
    ("cursor", "why"),
    [
        (lambda count: "same", "lists the same page of tools again and again"),
        (str, "spreads its tools over more than 64"),
    ],
)
async def test_pages_come_to_an_end(raw, bench, cursor, why):
    count = 0

    async def answer(message, writer):
        nonlocal count
        count += 1
        await reply(writer, message, {"tools": [], "nextCursor": cursor(count)})

    raw.answers["tools/list"] = answer
    kit = bench.open(bench.provider(), {"server_url": raw.url})
    assert why in (await kit.list()).error
    assert count <= 64


@pytest.mark.checklist(207)
async def test_all_servers_of_a_request_share_what_they_may_list(raw, bench):
    raw.list_tools({**TOOL, "description": "x" * 3000})
    tools = [{"server_label": label, "server_url": raw.url} for label in ("a", "b")]
    kit = bench.open(bench.provider(max_discovery_bytes=5000), *tools)
    listings = [await listing.fetch({}) for listing in kit.toolkit.listings]
    assert listings[0].error is None
    assert "5000 bytes" in listings[1].error
    assert bench.count("rejections_total", key="mcp.max_discovery_bytes") == 1


@pytest.mark.checklist(206)
async def test_all_servers_of_a_request_share_how_many_tools_they_may_offer(raw, bench):
    raw.list_tools(*({**TOOL, "name": name} for name in "abc"))
    tools = [{"server_label": label, "server_url": raw.url} for label in ("a", "b")]
    kit = bench.open(bench.provider(max_tools=5), *tools)
    listings = [await listing.fetch({}) for listing in kit.toolkit.listings]
    assert [len(listed.offered) for listed in listings] == [3, 0]
    assert "offers more tools than the 5" in listings[1].error
    assert bench.count("rejections_total", key="mcp.max_tools") == 1
    narrowed = [{**tool, "allowed_tools": ["a"]} for tool in tools]
    kit = bench.open(bench.provider(max_tools=2), *narrowed)
    assert [len((await listing.fetch({})).offered) for listing in kit.toolkit.listings] == [1, 1]


@pytest.mark.parametrize(
    ("listing", "why"),
    [
        ({"tools": "none"}, "not of the protocol"),
        ({}, "not of the protocol"),
        ({"tools": [{**TOOL, "inputSchema": {"type": "object", "a": None}}]}, None),
    ],
)
async def test_what_is_no_listing_is_a_failed_one(raw, bench, listing, why):
    async def answer(message, writer):
        await reply(writer, message, listing)

    raw.answers["tools/list"] = answer
    listed = await bench.open(bench.provider(), {"server_url": raw.url}).list()
    assert (why in listed.error) if why else (listed.error is None)


async def test_schemas_without_end_are_a_failed_listing(raw, bench):
    schema = {"type": "object"}
    for _ in range(80):
        schema = {"type": "object", "properties": {"a": schema}}
    raw.list_tools({**TOOL, "inputSchema": schema})
    assert "in more than 64 levels" in (await bench.open(bench.provider(), {"server_url": raw.url}).list()).error


# ---------------------------------------------------------------- where servers are


async def test_nobody_there_is_a_failed_listing(bench):
    kit = bench.open(bench.provider(), {"server_url": "http://127.0.0.1:1/mcp"})
    assert (await kit.list()).error == "The MCP server 'docs' could not be connected to."


@pytest.mark.checklist(209)
async def test_a_name_that_leads_to_this_machine_is_not_called(raw, bench):
    url = raw.url.replace("127.0.0.1", "localhost")
    kit = bench.open(bench.provider(allow_private_addresses=False), {"server_url": url})
    assert "has a private or local address, which this gateway does not call" in (await kit.list()).error
    assert raw.methods == []


@pytest.mark.checklist(209)
async def test_the_address_that_was_checked_is_the_one_that_is_called(raw, bench, monkeypatch):
    asked = []

    async def look_up(host, port):
        asked.append(host)
        return ["127.0.0.1"] if host in {"127.0.0.1", "moves.example"} else ["10.0.0.1"]

    monkeypatch.setattr("gateway.tools.addresses.look_up", look_up)
    raw.list_tools(TOOL)
    port = raw.url.rpartition(":")[2]
    kit = bench.open(bench.provider(), {"server_url": f"http://moves.example:{port}"})
    assert (await kit.list()).error is None
    assert asked.count("moves.example") == 1
    assert raw.messages[0][1]["host"].startswith("moves.example")


@pytest.mark.checklist(209)
async def test_a_configured_server_may_be_on_this_machine_and_proxies_are_not_asked(raw, bench, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    raw.list_tools(TOOL)
    kit = bench.open(bench.provider({"docs": {"url": raw.url}}, allow_private_addresses=False), {})
    assert (await kit.list()).error is None


# ---------------------------------------------------------------- secrets


@pytest.mark.checklist(210)
async def test_credentials_are_sent_and_never_repeated(raw, bench, caplog):
    async def answer(message, writer):
        await reply(writer, message, {"content": [{"type": "text", "text": str(raw.messages[-1][1])}]})

    raw.list_tools(TOOL)
    raw.answers["tools/call"] = answer
    tool = {"server_url": raw.url, "authorization": "s3cret-token", "headers": {"X-Key": "s3cret-header"}}
    kit = bench.open(bench.provider(), tool)
    await kit.list()
    sent = raw.messages[-1][1]
    assert (sent["authorization"], sent["x-key"]) == ("Bearer s3cret-token", "s3cret-header")
    told = await kit.call("say")
    assert "s3cret" not in f"{told}{caplog.text}"
    raw.answers["tools/call"] = unauthorized
    assert "s3cret" not in f"{await kit.call('say')}{caplog.text}"


@pytest.mark.checklist(210)
async def test_credentials_are_not_listed(raw, bench):
    schema = {"type": "object", "properties": {"s3cret-token": {"default": "s3cret-token", "enum": ["s3cret-token"]}}}
    raw.list_tools({"name": "say", "description": "Takes Bearer s3cret-token", "inputSchema": schema})
    kit = bench.open(bench.provider(), {"server_url": raw.url, "authorization": "s3cret-token"})
    ((tool,), (offered,)) = ((listed := await kit.list()).tools, listed.offered)
    assert tool["description"] == offered.function["description"] == "Takes ***"
    # Names stay what they are, or nobody could call by them.
    shown = {"s3cret-token": {"default": "***", "enum": ["s3cret-token"]}}
    assert tool["input_schema"]["properties"] == offered.function["parameters"]["properties"] == shown


@pytest.mark.checklist(211)
async def test_a_server_that_hangs_on_what_needs_no_answer_fails_in_time(raw, bench):
    raw.list_tools(TOOL)
    raw.answers["notifications/initialized"] = silent
    kit = bench.open(bench.provider(list_timeout_seconds=0.15), {"server_url": raw.url})
    assert "did not list its tools within 0.15 s" in (await kit.list()).error
    await kit.close()
    while bench.metrics.mcp_sessions.now:
        await asyncio.sleep(0.01)
