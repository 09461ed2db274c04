"""What the spans of a run tell."""

import asyncio
import contextvars
import json

import pytest
from engine.doubles import Bench, Reply, refusal, settle, streamed, whole
from harness.engine import Answer, call, says
from harness.tools import MCP, ScriptedListing, ScriptedTools, always, listed, tool
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.ports import HostedResult, Listed
from gateway.protocol.errors import InternalError, Unavailable, UpstreamRefused
from gateway.telemetry.tracing import Tracing

CONTENT = {"capture_content": True}
TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}


class TracedBench(Bench):
    """An engine whose spans are kept, below one request."""

    def __init__(self, **options):
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        super().__init__(tracing=Tracing(provider), **options)

    async def trace(self, work, **fields):
        """Do the work as a request of its own."""

        async def serve():
            with self.tracing.start_request("POST", {}):
                return await work(**fields)

        return await asyncio.create_task(serve(), context=contextvars.copy_context())

    @property
    def spans(self):
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def told(self, name="chat m"):
        return dict(self.spans[name].attributes)


async def test_a_call_tells_what_was_asked_and_how_it_ended():
    bench = TracedBench()
    bench.upstream.replies.append(whole(says("Hello there")))
    response = await bench.trace(bench.answer, max_output_tokens=9, top_p=0.5)
    told = bench.told()
    assert (told["gen_ai.request.stream"], told["gen_ai.request.max_tokens"], told["gen_ai.request.top_p"]) == (
        False,
        9,
        0.5,
    )
    assert (told["server.address"], told["server.port"]) == bench.upstream.address
    assert (told["gen_ai.response.id"], told["gen_ai.response.model"]) == ("resp_engine", "engine")
    assert "gen_ai.response.time_to_first_chunk" not in told
    assert "gen_ai.input.messages" not in told
    agent = bench.told("invoke_agent")
    assert (agent["gen_ai.response.id"], agent["gen_ai.usage.output_tokens"]) == (response["id"], 7)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (says("Hi"), "stop"),
        (Answer([call("look", "{}", "call_1")]), "tool_call"),
        (Answer(says("Hi").items, status="incomplete"), "length"),
    ],
)
async def test_why_a_model_stopped(answer, reason):
    bench = TracedBench()
    bench.upstream.replies.append(streamed(answer))
    await bench.trace(bench.stream, tools=[TOOL])
    assert bench.told()["gen_ai.response.finish_reasons"] == (reason,)


async def test_content_is_told_where_that_is_asked_for():
    bench = TracedBench(telemetry=CONTENT)
    bench.upstream.replies.append(streamed(says("Hello")))
    await bench.trace(bench.stream, instructions="Be brief.", tools=[TOOL])
    told = bench.told()
    assert json.loads(told["gen_ai.system_instructions"]) == [{"type": "text", "content": "Be brief."}]
    assert json.loads(told["gen_ai.input.messages"]) == [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]
    assert json.loads(told["gen_ai.output.messages"]) == [
        {"role": "assistant", "parts": [{"type": "text", "content": "Hello"}], "finish_reason": "stop"}
    ]
    assert [tool["name"] for tool in json.loads(told["gen_ai.tool.definitions"])] == ["look"]
    assert not any("content" in name or "messages" in name for name in bench.told("invoke_agent"))


async def test_content_is_cut_at_its_bound():
    bench = TracedBench(telemetry={**CONTENT, "capture_content_max_bytes": 50})
    bench.upstream.replies.append(streamed(says("é" * 100)))
    await bench.trace(bench.stream, input="é" * 100)
    for name in ("gen_ai.input.messages", "gen_ai.output.messages"):
        assert 48 < len(bench.told()[name].encode()) <= 50


async def test_a_refused_call_fails_its_span():
    bench = TracedBench()
    bench.upstream.replies.append(Reply(error=refusal()))
    with pytest.raises(UpstreamRefused):
        await bench.trace(bench.answer)
    assert [bench.told(name)["error.type"] for name in ("chat m", "invoke_agent")] == ["busy", "busy"]
    assert "gen_ai.response.finish_reasons" not in bench.told()


async def test_an_agent_that_the_gateway_ends_says_so():
    bench = TracedBench()
    bench.upstream.replies.append(Reply([asyncio.Event()], event_stream=False))
    waiting = asyncio.create_task(bench.trace(bench.answer))
    await settle()
    bench.engine.cut_off()
    with pytest.raises(Unavailable):
        await waiting
    (event,) = bench.spans["invoke_agent"].events
    assert (event.name, dict(event.attributes)) == ("gateway.cancelled", {"gateway.cancelled.by": "cut_off"})


async def test_an_unforeseen_failure_goes_by_its_name():
    bench = TracedBench()
    bench.upstream.replies.append(Reply([RuntimeError("detail")]))
    with pytest.raises(InternalError):
        await bench.trace(bench.stream)
    assert bench.told()["error.type"] == "RuntimeError"
    assert bench.told("invoke_agent")["error.type"] == "server_error"
    assert "detail" not in "".join(span.to_json() for span in bench.spans.values())


@pytest.mark.parametrize("calls", [1, 2])
async def test_listings_and_calls_of_the_gateways_tools_have_spans_and_hand_them_on(calls):
    failed = HostedResult(output="No.", size=3, fields={"status": "failed"}, failed=True)
    broken = Listed(tools=(), offered=(), size=0, error="unreachable")
    tools = ScriptedTools(
        {"see": always(failed)},
        known=[tool("look"), tool("see")],
        servers=[ScriptedListing("s", listed()), ScriptedListing("dead", broken)],
    )
    bench = TracedBench(tools=tools)
    called = [call(f"mcp__s__{name}", "{}", name) for name in ("look", "see")]
    bench.upstream.replies.extend([whole(Answer(called[:calls])), whole(says("x"))])
    await bench.trace(bench.answer, tools=[MCP])
    finished = bench.exporter.get_finished_spans()
    assert [span.name for span in finished].count("chat m") == 2
    assert {span.parent.span_id for span in finished if span.name != "POST" and span.name != "invoke_agent"} == {
        bench.spans["invoke_agent"].context.span_id
    }
    told = bench.told("execute_tool look")
    assert (told["gen_ai.operation.name"], told["gen_ai.tool.name"]) == ("execute_tool", "look")
    assert (told["gen_ai.tool.call.id"], told["gateway.mcp.server.label"]) == (tools.calls[0].item_id, "s")
    for one in tools.calls:
        span = bench.spans[f"execute_tool {one.tool.name}"]
        assert f"{span.context.span_id:016x}" in one.headers["traceparent"]
        assert (span.attributes.get("error.type") == "tool_error") == (one.tool.name == "see")
    assert bench.told("tools/list s")["gateway.mcp.server.label"] == "s"
    assert "error.type" not in bench.told("tools/list s")
    assert bench.told("tools/list dead")["error.type"] == "tool_error"
