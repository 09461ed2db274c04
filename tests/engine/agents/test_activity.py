"""What traces and metrics tell of agents."""

import asyncio
import contextvars

from engine.agents.bench import ALPHA, ROOT, TreeBench
from harness.agents import fail, listing, say, spawn, wait
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from gateway.telemetry.tracing import Tracing


async def trace(script):
    """The response that a script makes, the bench, and its spans, with the name of each one's parent."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    bench = TreeBench(script, tracing=Tracing(provider))

    async def serve():
        with bench.tracing.start_request("POST", {}):
            return await bench.answer()

    response = await asyncio.create_task(serve(), context=contextvars.copy_context())
    return response, bench, exporter.get_finished_spans()


def name_of(span):
    return span.attributes.get("gen_ai.agent.name", span.name)


async def test_every_activation_has_a_span_below_that_of_the_response_and_calls_below_it():
    _, _, spans = await trace({ROOT: [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[listing()], [say("found")]]})
    by_id = {span.context.span_id: name_of(span) for span in spans}
    told = [(name_of(span), by_id.get(span.parent.span_id if span.parent else None)) for span in spans]
    assert sorted(told, key=str) == sorted(
        [
            ("chat m", ROOT), ("chat m", ROOT), ("chat m", ALPHA), ("chat m", ALPHA),
            (ALPHA, "invoke_agent"), (ROOT, "invoke_agent"), ("invoke_agent", "POST"), ("POST", None),
        ],
        key=str,
    )  # fmt: skip


async def test_the_span_of_an_agent_that_fails_says_so():
    response, _, spans = await trace({ROOT: [[spawn("alpha"), wait()], [say("done")]], ALPHA: [[fail(500)]]})
    assert response["status"] == "completed"
    (span,) = [span for span in spans if name_of(span) == ALPHA]
    assert span.attributes["error.type"] == "agent_failed"


async def test_metrics_count_agents_rounds_and_actions():
    bench = TreeBench({ROOT: [[spawn("alpha"), spawn("alpha"), wait()], [say("done")]], ALPHA: [[say("found")]]})
    await bench.answer()
    assert bench.sample("agents_spawned_total") == 1
    assert bench.sample("agent_actions_total", action="spawn_agent", outcome="done") == 1
    assert bench.sample("agent_actions_total", action="spawn_agent", outcome="refused") == 1
    assert bench.sample("agent_actions_total", action="wait_agent", outcome="done") == 1
    assert bench.sample("agent_rounds_sum") == 3
    assert (bench.sample("agents_active"), bench.sample("agents_active_high_water")) == (0, 2)
