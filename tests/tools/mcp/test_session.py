"""How sessions begin, or do not: handshakes that go wrong, certificates, what spans tell of them."""

import json
import ssl

import pytest
import trustme
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tools.mcp.bench import RawServer, reply, send

from gateway.telemetry.tracing import Tracing

TOOL = {"name": "say", "inputSchema": {"type": "object"}}


async def unauthorized(message, writer):
    await send(writer, 401, b"")


async def refused(message, writer):
    error = {"code": -32600, "message": "no place left"}
    body = json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": error}).encode()
    await send(writer, 200, body, "content-type: application/json")


async def of_the_future(message, writer):
    info = {"name": "raw", "version": "1"}
    await reply(writer, message, {"protocolVersion": "2999-01-01", "capabilities": {}, "serverInfo": info})


async def garbage(message, writer):
    await send(writer, 200, b"<html>", "content-type: application/json")


async def no_result(message, writer):
    await reply(writer, message, {"hello": 1})


@pytest.mark.checklist(211)
@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (unauthorized, "answered with HTTP status 401"),
        (refused, "refused: no place left"),
        (of_the_future, "speaks a version of the protocol that this gateway does not"),
        (garbage, "does not speak the protocol, or ended the session"),
        (no_result, "does not speak the protocol, or ended the session"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_handshake_that_goes_wrong_is_a_failed_listing(raw, bench, answer, why):
    raw.answers["initialize"] = answer
    kit = bench.open(bench.provider(), {"server_url": raw.url})
    assert f"The MCP server 'docs' {why}" in (await kit.list()).error
    assert (await kit.list()).error is not None
    await kit.close()
    assert bench.metrics.mcp_sessions.now == 0


@pytest.fixture
async def encrypted(tmp_path):
    """A raw server with a certificate of an authority of its own, and the authority's file."""
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    server = RawServer()
    await server.start(context)
    server.list_tools(TOOL)
    yield server, str(tmp_path / "ca.pem")
    await server.close()


@pytest.mark.checklist(209)
async def test_certificates_are_checked_by_name_and_authority(encrypted, bench):
    server, ca_file = encrypted
    untrusted = bench.open(bench.provider({"docs": {"url": server.url}}), {})
    assert "shows no certificate that is trusted" in (await untrusted.list()).error
    trusted = bench.open(bench.provider({"docs": {"url": server.url, "ca_file": ca_file}}), {})
    assert (await trusted.list()).error is None
    url = server.url.replace("localhost", "127.0.0.1")
    other = bench.open(bench.provider({"docs": {"url": url, "ca_file": ca_file}}), {})
    assert "shows no certificate that is trusted" in (await other.list()).error


@pytest.mark.checklist(210, 212)
async def test_spans_tell_of_the_session_and_of_no_secret(raw, bench):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    tracing = Tracing(provider)
    raw.list_tools(TOOL)
    raw.return_({"content": [{"type": "text", "text": "s3cret-output"}]})
    kit = bench.open(bench.provider(), {"server_url": raw.url, "authorization": "s3cret-token"})
    with tracing.start_request("POST", {}), tracing.start_agent():
        with tracing.start_listing("docs"):
            await kit.list()
        with tracing.start_tool("say"):
            await kit.call("say")
    listing, call = (span.attributes for span in exporter.get_finished_spans()[:2])
    assert (listing["mcp.method.name"], call["mcp.method.name"]) == ("tools/list", "tools/call")
    assert listing["mcp.protocol.version"] == call["mcp.protocol.version"] == "2025-06-18"
    assert call["jsonrpc.request.id"] == str(raw.messages[-1][0]["id"])
    assert "s3cret" not in str([span.to_json() for span in exporter.get_finished_spans()])


@pytest.mark.checklist(211)
async def test_progress_does_not_extend_a_call(real_server, bench):
    kit = bench.open(bench.provider({"docs": {"url": real_server.url}}, call_timeout_seconds=0.2), {})
    await kit.list()
    assert (await kit.call("wait")).output == "The MCP server 'docs' did not answer within 0.2 s."
    assert bench.count("rejections_total", key="mcp.call_timeout_seconds") == 1
