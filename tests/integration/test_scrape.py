"""What Prometheus reads of a running gateway, parsed as a client library does."""

import asyncio
import re
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import closing

import pytest
from harness.client import RESPONSES, client, create, open_create, read_until
from harness.engine import frame, says
from harness.upstream import Reply, Request, Upstream
from harness.websocket import WebSocket
from integration.watched import WatchedGateway
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from gateway.telemetry import names
from gateway.telemetry.names import Metric

METRICS = [value for value in vars(names).values() if isinstance(value, Metric)]
# As vLLM 0.32 shows them itself.
VLLM = {
    "time_to_first_token": "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 "
    "160.0 640.0 2560.0 +Inf",
    "inter_token": "0.01 0.025 0.05 0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1.0 2.5 5.0 7.5 10.0 20.0 40.0 80.0 +Inf",
}
Scrape = Mapping[str, Family]


def stream_paced(port: int, upstream: Upstream) -> str:
    """Have a stream made whose deltas come one by one, each when the one before has been read; returns its id."""
    read = threading.Semaphore(0)

    async def play(_: Request, reply: Reply) -> None:
        await reply.head()
        piece = b""
        for event in says("one,two,six", chunk=4).events():
            piece += frame(event)
            if event["type"].endswith(".delta"):
                await reply.send(piece)
                await asyncio.to_thread(read.acquire, timeout=10)
                piece = b""
        await reply.send(piece)
        await reply.end()

    model = upstream.script("paced", play)
    with closing(open_create(port, {"model": model, "input": "hi", "stream": True})) as caller:
        for word in (b"one,", b"two,", b"six"):
            head = read_until(caller, b'"delta":"%b"' % word)
            read.release()
        return re.search(rb"resp_\w+", head + read_until(caller, b"[DONE]"))[0].decode()


@pytest.fixture(scope="module")
def scraped(upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scrape]:
    """The metrics of a gateway that has served a stream, a create, a read and a body that is too large."""
    upstream.script("scraped", says("Hello there"))
    settings = {"server.max_request_body_bytes": "4096"}
    with WatchedGateway(tmp_path_factory.mktemp("scraped"), upstream, settings) as gateway:
        stored = stream_paced(gateway.port, upstream)
        with WebSocket(gateway.port) as socket:
            socket.create("scraped")
            socket.events_until_terminal()
        with client(gateway.port) as caller:
            caller.get(f"{RESPONSES}/{stored}")
            caller.get("/v1/models")
            caller.call("POST", RESPONSES, b" " * 4097)
        create(gateway.port, {"model": "scripted", "input": "hi"})
        with urllib.request.urlopen(f"{gateway.admin_url}/metrics", timeout=10) as page:
            assert page.headers["content-type"].startswith("text/plain; version=")
            text = page.read().decode()
        yield {family.name: family for family in text_string_to_metric_families(text)}


def sample(scraped: Scrape, name: str, **labels: str) -> float:
    family = scraped.get(name.removesuffix("_total")) or scraped[name.rpartition("_")[0]]
    (value,) = (one.value for one in family.samples if one.name == name and one.labels == labels)
    return value


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_family_is_on_the_page(scraped: Scrape, metric: Metric) -> None:
    family = scraped[metric.name.removesuffix("_total") if metric.kind == "counter" else metric.name]
    assert (family.type, family.documentation) == (metric.kind, metric.help)
    assert all(set(metric.labels) == set(one.labels) - {"le"} for one in family.samples)


def test_the_page_has_no_other_family_of_ours(scraped: Scrape) -> None:
    known = {metric.name.removesuffix("_total") for metric in METRICS}
    assert {name.removesuffix("_created") for name in scraped if name.startswith("gateway_")} == known


def test_what_was_served_is_counted(scraped: Scrape) -> None:
    for transport in ("sse", "websocket"):
        assert sample(scraped, "gateway_response_seconds_count", transport=transport, status="completed") == 1
    # The first delta has nothing to be measured from.
    assert sample(scraped, "gateway_inter_token_seconds_count") == 2
    assert sample(scraped, "gateway_time_to_first_token_seconds_count") == 2
    assert sample(scraped, "gateway_storage_read_seconds_count", query="response") == 1
    assert sample(scraped, "gateway_upstream_healthy", upstream="default") == 1
    assert sample(scraped, "gateway_limit_bytes", key="server.max_request_body_bytes") == 4096
    assert sample(scraped, "gateway_rejections_total", key="server.max_request_body_bytes") == 1


def test_tokens_go_by_names_the_server_knows(scraped: Scrape) -> None:
    assert sample(scraped, "gateway_tokens_total", model="other", kind="input") == 10
    models = {one.labels["model"] for one in scraped["gateway_tokens"].samples}
    assert models <= {"other", "scripted"}


def test_times_of_tokens_have_the_buckets_of_vllm(scraped: Scrape) -> None:
    for name, bounds in VLLM.items():
        family = scraped[f"gateway_{name}_seconds"]
        assert " ".join(one.labels["le"] for one in family.samples if "le" in one.labels) == bounds
