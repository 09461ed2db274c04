import asyncio
import logging

import pytest
from tools.web_search.scripted import KEY, answer, results

from gateway.ports.tools import HostedCall, ToolContext
from gateway.protocol.errors import InvalidRequest
from gateway.tools.web_search.toolkit import read_lines

DECLARED = {"type": "web_search"}


def context(*include: str, names: tuple[str, ...] = ()) -> ToolContext:
    return ToolContext(
        principal="local",
        response_id="resp_1",
        include=frozenset(include),
        items=(),
        first_new=0,
        names=frozenset(names),
    )


async def run(toolkit, arguments: str):
    (tool,) = toolkit.offered
    return await toolkit.run(HostedCall(item_id="ws_1", tool=tool, arguments=arguments))


def refused(metrics, bound: str) -> float | None:
    return metrics.registry.get_sample_value("gateway_rejections_total", {"key": bound})


def test_one_function_is_offered(search):
    place = {"city": "Oslo", "country": "NO"}
    declared = {**DECLARED, "user_location": place, "filters": {"allowed_domains": ["yr.no"]}}
    toolkit = search(max_queries=3).open([declared], context())
    (tool,) = toolkit.offered
    assert (tool.kind, tool.name, tool.label) == ("web_search_call", "web_search", "")
    assert tool.function["parameters"]["properties"]["queries"]["maxItems"] == 3
    assert tool.function["strict"]
    assert "Oslo, NO" in tool.function["description"]
    assert "yr.no" in tool.function["description"]
    assert (toolkit.listings, toolkit.decided) == ((), ())


def test_a_name_that_is_taken_is_left_to_the_client(search):
    (tool,) = search().open([DECLARED], context(names=("web_search", "web_search_2"))).offered
    assert tool.function["name"] == tool.name == "web_search_3"


@pytest.mark.parametrize(
    ("arguments", "queries"),
    [
        ('{"queries": ["rain", " rain ", "sun\\nshine", "", 3, "a", "b"]}', ["rain", "sun shine", "a", "b"]),
        ('{"query": "rain"}', ["rain"]),
        ('{"queries": ["%s"]}' % ("x" * 900), ["x" * 400]),
        ('{"queries": "rain"}', ["rain"]),
        ("rain", []),
        ("[]", []),
        ('{"queries": []}', []),
        ('{"queries": {"a": 1}}', []),
        ('{"queries": [[[]]]}', []),
        ("", []),
        ('{"queries": ["r\\ud800ain", "sun"]}', ["r?ain", "sun"]),
    ],
)
def test_queries_are_read(arguments, queries):
    assert read_lines(arguments) == queries


async def test_a_search_tells_model_and_client(search, provider, metrics):
    result = await run(search().open([DECLARED], context()), '{"queries": ["rain"]}')
    assert result.output.startswith("Results:\n\n[1] Page one\nhttps://one.example/\nAbout one.")
    assert result.size == len(result.output.encode())
    assert result.fields == {
        "status": "completed", "action": {"type": "search", "query": "rain", "queries": ["rain"]},
    }  # fmt: skip
    assert not result.failed
    assert [(source.number, source.url) for source in result.sources] == [
        (1, "https://one.example/"), (2, "https://two.example/"),
    ]  # fmt: skip
    assert metrics.registry.get_sample_value("gateway_web_search_queries_total", {"outcome": "answered"}) == 1


async def test_sources_and_results_are_shown_to_who_asks(search, provider):
    toolkit = search().open([DECLARED], context("web_search_call.action.sources", "web_search_call.results"))
    fields = (await run(toolkit, '{"query": "rain"}')).fields
    assert fields["action"]["sources"] == [
        {"type": "url", "url": "https://one.example/"}, {"type": "url", "url": "https://two.example/"},
    ]  # fmt: skip
    assert fields["results"][1] == {"url": "https://two.example/", "title": "Page two", "text": "About two."}


async def test_queries_run_at_once_and_their_sources_are_one_list(search, provider):
    both = asyncio.Barrier(2)

    def together(*names):
        async def reply(writer: asyncio.StreamWriter) -> None:
            await both.wait()
            await answer(results(*names))(writer)

        return reply

    provider.replies = {"rain": together("one", "two"), "sun": together("two", "three")}
    toolkit = search().open([DECLARED], context())
    result = await run(toolkit, '{"queries": ["rain", "sun"]}')
    assert [source.title for source in result.sources] == ["Page one", "Page two", "Page three"]
    again = await run(toolkit, '{"query": "snow"}')
    assert [source.number for source in again.sources] == [1, 2]


async def test_one_query_that_fails_leaves_the_others(search, provider, metrics, caplog):
    provider.replies = {"sun": answer({}, "429 Too Many Requests")}
    with caplog.at_level(logging.WARNING, "gateway.tools"):
        result = await run(search().open([DECLARED], context()), '{"queries": ["sun", "rain"]}')
    assert (result.failed, result.fields["status"]) == (False, "completed")
    assert "A query failed: the answer has status 429." in result.output
    assert metrics.registry.get_sample_value("gateway_web_search_queries_total", {"outcome": "busy"}) == 1
    (record,) = caplog.records
    assert (record.outcome, "sun" in record.getMessage()) == ("busy", False)


async def test_of_too_many_queries_the_first_are_asked(search, provider, metrics):
    result = await run(search(max_queries=2).open([DECLARED], context()), '{"queries": ["rain", "sun", "snow"]}')
    assert result.fields["action"]["queries"] == ["rain", "sun"]
    assert "Only the first 2 queries were asked." in result.output
    assert sorted(asked.query["q"][0] for asked in provider.asked) == ["rain", "sun"]
    assert refused(metrics, "web_search.max_queries") == 1


async def test_bounds_that_are_met_are_counted(search, provider, metrics):
    await run(search(max_response_bytes=10).open([DECLARED], context()), '{"query": "rain"}')
    assert refused(metrics, "web_search.max_response_bytes") == 1


async def test_when_all_fail_the_search_has_failed(search, provider):
    provider.reply = answer({}, "401 Unauthorized")
    result = await run(search().open([DECLARED], context()), '{"queries": ["sun", "rain"]}')
    assert result.failed
    assert result.fields == {
        "status": "failed", "action": {"type": "search", "query": "sun", "queries": ["sun", "rain"]},
    }  # fmt: skip
    assert result.output.count("the answer has status 401") == 1
    assert (result.sources, KEY in result.output) == ((), False)


async def test_without_a_query_nothing_is_asked(search, provider):
    result = await run(search().open([DECLARED], context()), "rain, please")
    assert (result.failed, result.fields["status"], "queries" in result.output) == (True, "failed", True)
    assert provider.asked == []


async def test_filters_hold_whatever_the_provider_finds(search, provider):
    provider.reply = answer(results("one", "two", "three"))
    declared = {**DECLARED, "filters": {"allowed_domains": ["two.example", "three.example"]}}
    result = await run(search(max_results=1).open([declared], context()), '{"query": "rain"}')
    assert [source.title for source in result.sources] == ["Page two"]


@pytest.mark.parametrize(("depth", "count"), [("low", 3), ("medium", 6), ("high", 10)])
async def test_the_size_of_the_context_bounds_the_results(search, provider, depth, count):
    provider.reply = answer(results(*(f"n{number}" for number in range(30))))
    toolkit = search().open([{**DECLARED, "search_context_size": depth}], context())
    assert len((await run(toolkit, '{"query": "rain"}')).sources) == count


async def test_leaving_ends_the_search_at_once(search, provider):
    asked = asyncio.Event()

    async def hold(writer: asyncio.StreamWriter) -> None:
        asked.set()
        await asyncio.Event().wait()

    provider.reply = hold
    toolkit = search().open([DECLARED], context())
    running = asyncio.create_task(run(toolkit, '{"query": "rain"}'))
    await asked.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await toolkit.close()


@pytest.mark.checklist(302)
@pytest.mark.parametrize(("name", "path"), [("brave", "/res/v1/web/search"), ("tavily", "/search")])
async def test_each_provider_is_asked_its_way(search, provider, name, path):
    found = results("one")
    provider.reply = answer({**found, "web": found})
    result = await run(search(name).open([DECLARED], context()), '{"query": "rain"}')
    assert [source.title for source in result.sources] == ["Page one"]
    (asked,) = provider.asked
    assert asked.path == path
    assert KEY in (asked.headers.get("x-subscription-token", "") + asked.headers.get("authorization", ""))


def test_types_and_declarations_are_checked(search):
    tools = search()
    assert tools.runs("web_search_preview_2025_03_11")
    assert not tools.runs("mcp")
    tools.check([("tools[3]", DECLARED)])
    with pytest.raises(InvalidRequest) as refused:
        tools.check([("tools[0]", DECLARED), ("tools[2]", {"type": "web_search_preview"})])
    assert refused.value.param == "tools[2].type"
    with pytest.raises(InvalidRequest) as refused:
        tools.check([("tools[1]", {**DECLARED, "filters": 3})])
    assert refused.value.param == "tools[1].filters"


def test_the_echo_has_the_defaults(search):
    assert search().show({"type": "web_search", "search_context_size": "low"}) == {
        "type": "web_search", "filters": None, "search_context_size": "low", "user_location": None,
    }  # fmt: skip
