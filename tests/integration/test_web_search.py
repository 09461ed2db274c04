"""Web search over every transport, against a process of the gateway and a scripted search provider."""

import asyncio
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from conformance.verdict import judge_response
from harness.client import client, create, open_create
from harness.engine import Answer, call, in_turn, reasoning, says
from harness.processes import Gateway
from harness.upstream import Upstream
from harness.websocket import WebSocket
from integration.turns import anonymous, ask, expect_sound, final
from tools.web_search.scripted import KEY, ScriptedProvider, answer, results

SEARCH = {"type": "web_search"}
SOURCES, RESULTS = "web_search_call.action.sources", "web_search_call.results"
TEXT = "It rains [2], says https://one.example/. Not [7]."


@pytest.fixture(scope="module")
def provider() -> Iterator[ScriptedProvider]:
    """A search provider in a thread of its own."""
    scripted, ready, over = ScriptedProvider(), threading.Event(), asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        server = await asyncio.start_server(scripted.serve, "127.0.0.1", 0)
        scripted.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        ready.set()
        async with server:
            await over.wait()

    thread = threading.Thread(target=asyncio.run, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    yield scripted
    loops[0].call_soon_threadsafe(over.set)
    thread.join()


@pytest.fixture(autouse=True)
def fresh(provider: ScriptedProvider) -> None:
    provider.reply = answer(results("one", "two"))
    provider.replies = {"never answered": answer({}, "429 Too Many Requests")}
    provider.asked.clear()


@pytest.fixture(scope="module")
def searching(provider: ScriptedProvider, upstream: Upstream, tmp_path_factory: Any) -> Iterator[Gateway]:
    """A gateway that asks it, with a key by the environment."""
    settings = {
        "web_search.provider": "searxng",
        "web_search.url": provider.url,
        "web_search.allow_private_addresses": "true",
    }
    folder = tmp_path_factory.mktemp("searching")
    with Gateway(folder, upstream.url, settings, {"GATEWAY_WEB_SEARCH__API_KEY": KEY}) as running:
        yield running
    assert KEY not in (folder / "gateway.log").read_text()


def search_call(*queries: str, number: int = 1) -> dict[str, Any]:
    listed = ", ".join(f'"{query}"' for query in queries)
    return call("web_search", f'{{"queries": [{listed}]}}', f"call_{number}")


def script(upstream: Upstream, name: str, *items: dict[str, Any], text: str = TEXT, chunk: int = 5) -> str:
    return upstream.script(name, in_turn(Answer(list(items), chunk=chunk), says(text, chunk)))


def play(way: str, gateway: Gateway, model: str, **fields: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the response and, of a stream, its events."""
    if way == "websocket":
        with WebSocket(gateway.port) as socket:
            events = ask(socket, model, **fields)
        expect_sound(events)
        return final(events), events
    body = {"model": model, "input": "Is it raining?", **fields}
    answered = create(gateway.port, {**body, "stream": way == "sse"})
    assert answered.status == 200, answered.body
    if way == "json":
        assert judge_response(answered.json) == []
        return answered.json, []
    expect_sound(answered.events)
    return answered.final, answered.events


every_way = pytest.mark.parametrize("way", ["json", "sse", "websocket"])


@every_way
@pytest.mark.checklist(302, 305, 306, 307)
def test_a_search_is_told_stored_and_cited(way, searching, upstream, provider):
    model = script(upstream, f"search-{way}", reasoning("Look."), search_call("rain", "never answered"))
    response, events = play(way, searching, model, tools=[SEARCH], include=[SOURCES, RESULTS])
    _, searched, said = response["output"]
    assert searched == {
        "id": searched["id"],
        "type": "web_search_call",
        "status": "completed",
        "action": {
            "type": "search",
            "query": "rain",
            "queries": ["rain", "never answered"],
            "sources": [{"type": "url", "url": f"https://{name}.example/"} for name in ("one", "two")],
        },
        "results": [
            {"url": f"https://{name}.example/", "title": f"Page {name}", "text": f"About {name}."}
            for name in ("one", "two")
        ],
    }
    (part,) = said["content"]
    assert part["text"] == TEXT
    assert part["annotations"] == [
        {"type": "url_citation", "start_index": 9, "end_index": 12, "url": "https://two.example/", "title": "Page two"},
        {
            "type": "url_citation",
            "start_index": 19,
            "end_index": 39,
            "url": "https://one.example/",
            "title": "Page one",
        },
    ]
    if events:
        kinds = [event["type"].removeprefix("response.") for event in events]
        begun = kinds.index("web_search_call.in_progress")
        assert kinds[begun - 1 : begun + 4] == [
            "output_item.added", "web_search_call.in_progress", "web_search_call.searching",
            "web_search_call.completed", "output_item.done",
        ]  # fmt: skip
        assert kinds.count("output_text.annotation.added") == 2
    with client(searching.port) as caller:
        assert caller.get(f"/v1/responses/{response['id']}").json == response
    first, second = [request.body for request in upstream.requests if request.body.get("model") == model]
    assert [tool["name"] for tool in first["tools"]] == ["web_search"]
    assert not any("web_search" in value for value in first.get("include") or [])
    told = second["input"][-1]
    assert (told["type"], told["call_id"]) == ("function_call_output", searched["id"])
    assert told["output"].startswith("Results:\n\n[1] Page one\nhttps://one.example/\nAbout one.")
    assert "A query failed: the answer has status 429." in told["output"]
    assert {asked.headers["authorization"] for asked in provider.asked} == {f"Bearer {KEY}"}


@pytest.mark.checklist(305)
def test_every_transport_tells_the_same(searching, upstream):
    model = upstream.script("same", search_once)
    told = [play(way, searching, model, tools=[SEARCH], include=[SOURCES])[0] for way in ("json", "sse", "websocket")]
    first, second, third = (
        anonymous({key: one[key] for key in ("output", "usage", "status", "tools")}) for one in told
    )
    assert first == second == third


async def search_once(request, reply):
    """Search once, then answer."""
    again = request.body["input"][-1]["type"] == "function_call_output"
    await (says(TEXT) if again else Answer([search_call("rain")]))(request, reply)


@pytest.mark.checklist(306)
def test_who_asks_for_no_sources_gets_none(searching, upstream):
    model = script(upstream, "plain", search_call("rain"))
    response, _ = play("json", searching, model, tools=[SEARCH])
    assert response["output"][0]["action"] == {"type": "search", "query": "rain", "queries": ["rain"]}
    assert "results" not in response["output"][0]


@every_way
@pytest.mark.checklist(308)
def test_a_provider_that_fails_fails_the_item_and_not_the_response(way, searching, upstream, provider):
    provider.reply = answer(b"<html>")
    model = script(upstream, f"failing-{way}", search_call("rain"), text="I could not look.")
    response, _ = play(way, searching, model, tools=[SEARCH])
    searched, said = response["output"]
    assert (response["status"], searched["status"]) == ("completed", "failed")
    assert searched["action"]["query"] == "rain"
    assert said["content"][0]["annotations"] == []
    (_, second) = [request.body for request in upstream.requests if request.body.get("model") == model]
    assert "The search failed: the answer is no JSON." in second["input"][-1]["output"]


@pytest.mark.checklist(301)
@pytest.mark.parametrize("kind", ["web_search_2025_08_26", "web_search_preview", "web_search_preview_2025_03_11"])
def test_dated_names_are_the_same_tool(kind, searching, upstream):
    model = script(upstream, f"named-{kind}", search_call("rain"))
    response, _ = play("json", searching, model, tools=[{"type": kind}], tool_choice={"type": kind})
    assert [item["type"] for item in response["output"]] == ["web_search_call", "message"]
    assert response["tools"][0]["type"] == kind


@pytest.mark.checklist(301)
def test_what_is_wrong_is_named(searching, upstream):
    tools = [{"type": "function", "name": "f"}, {**SEARCH, "filters": {"allowed_domains": ["https://a.example"]}}]
    refused = create(searching.port, {"model": "x", "input": "hi", "tools": tools})
    assert (refused.status, refused.error["param"]) == (400, "tools[1].filters.allowed_domains[0]")


@pytest.mark.checklist(309)
def test_a_continuation_tells_what_was_searched_for(searching, upstream):
    model = upstream.script("going on", in_turn(Answer([search_call("rain")]), says("Yes [1]."), says("As I said.")))
    first, _ = play("json", searching, model, tools=[SEARCH], include=[SOURCES])
    second, _ = play("json", searching, model, previous_response_id=first["id"], input="Sure?")
    assert second["status"] == "completed"
    history = upstream.requests[-1].body["input"]
    asked, found = next(pair for pair in pairwise(history) if pair[0].get("type") == "function_call")
    assert asked["arguments"] == '{"queries":["rain"]}'
    assert (found["type"], found["call_id"]) == ("function_call_output", asked["call_id"])
    assert "https://one.example/" in found["output"]


@pytest.mark.checklist(309)
def test_a_client_may_send_its_history_without_ids(searching, upstream):
    model = upstream.script("without ids", says("Yes."))
    action = {"type": "search", "query": "rain"}
    searches = [{"type": "web_search_call", "status": "completed", "action": action}] * 2
    response, _ = play("json", searching, model, input=[{"role": "user", "content": "hi"}, *searches])
    assert response["status"] == "completed"
    sent = upstream.requests[-1].body["input"][1:]
    assert [item["type"] for item in sent] == ["function_call", "function_call_output"] * 2
    first, found, second, again = (item["call_id"] for item in sent)
    assert (first, second) == (found, again)
    assert len({first, second}) == 2


@pytest.mark.checklist(303)
def test_a_client_that_leaves_ends_the_search(searching, upstream, provider):
    asked, left = threading.Event(), threading.Event()

    async def hold(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        asked.set()
        try:
            while not writer.is_closing():
                writer.write(b" ")
                await writer.drain()
                await asyncio.sleep(0.01)
        finally:
            left.set()

    provider.reply = hold
    model = script(upstream, "leaving", search_call("rain"))
    with open_create(searching.port, {"model": model, "input": "hi", "stream": True, "tools": [SEARCH]}):
        assert asked.wait(10)
    assert left.wait(10)


def test_where_it_is_off_it_is_left_out_and_named(gateway, upstream):
    model = upstream.script("off", says("No idea."))
    answered = create(gateway.port, {"model": model, "input": "hi", "tools": [SEARCH]})
    assert (answered.status, answered.headers["x-gateway-unsupported-tools"]) == (200, "web_search")
    assert not upstream.requests[-1].body.get("tools")
