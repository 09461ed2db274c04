"""The inference call that writes a note."""

import asyncio
import hashlib
import time
from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.config.schema import CompactionConfig
from gateway.engine.failures import name_outcome
from gateway.engine.routing import Route
from gateway.engine.spans import conclude_summary, describe_call
from gateway.ports import UpstreamCall
from gateway.protocol import codec
from gateway.protocol.compaction import Window
from gateway.protocol.compaction_prompt import REQUEST
from gateway.protocol.errors import GatewayError, ResourceLimitExceeded, UpstreamError, UpstreamTimeout
from gateway.protocol.requests import CreateRequest
from gateway.protocol.response import Usage, read_usage
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.tracing import Tracing

# Of the caller's own additions those that bear on how the model reads, and not on what it writes.
_EXTRAS = ("chat_template_kwargs", "cache_salt", "priority")


class Summary(Struct, frozen=True, kw_only=True):
    """What a model wrote.

    Attributes:
        text: the note; empty if it wrote none.
        usage: the tokens it took, if the server told.
    """

    text: str
    usage: Usage | None


class Task(Struct, frozen=True, kw_only=True):
    """For whom and of what a note is written.

    Attributes:
        principal: who asks.
        headers: the caller's headers that are passed on.
        request: what was asked for; its instructions count, and its tools do not.
        route: the inference server.
        max_answer_bytes: `[responses] max_upstream_json_bytes`.
        content_bytes: how much of the content the span may tell; 0 for nothing.
    """

    principal: str
    headers: Mapping[str, str]
    request: CreateRequest
    route: Route
    max_answer_bytes: int
    content_bytes: int = 0


class Summarizer:
    """Asks models for notes.

    Args:
        config: how long a note may be, and may take.
        metrics: what is counted.
        tracing: a span for each call.
    """

    def __init__(self, config: CompactionConfig, metrics: Metrics, tracing: Tracing) -> None:
        self._config = config
        self._metrics = metrics
        self._tracing = tracing

    def reconfigure(self, config: CompactionConfig) -> None:
        """Use other bounds for every note from now on."""
        self._config = config

    async def summarize(self, task: Task, window: Window) -> Summary:
        """Return a note of what the window would replace.

        Raises:
            UpstreamError: the server refused, or answered nothing that could be used.
            UpstreamTimeout: it took longer than `[compaction] timeout_seconds`.
            Unavailable: no seat became free in time, or the server is left alone.
            ResourceLimitExceeded: the answer passes `max_upstream_json_bytes`.
        """
        began, seconds = time.perf_counter(), self._config.timeout_seconds
        count = self._metrics.compactions_total.labels
        try:
            async with asyncio.timeout(seconds):
                return await self._ask(task, window)
        except TimeoutError:
            count("timeout").inc()
            raise UpstreamTimeout(
                f"The history could not be summarized within {seconds:g} seconds ([compaction] timeout_seconds).",
                bound="compaction.timeout_seconds",
            ) from None
        except GatewayError as error:
            count("timeout" if isinstance(error, UpstreamTimeout) else "failed").inc()
            raise
        finally:
            self._metrics.compaction_seconds.observe(time.perf_counter() - began)

    async def _ask(self, task: Task, window: Window) -> Summary:
        route = task.route
        body = self._compose(task, window)
        with await route.seats.take(), self._tracing.start_call(route.model) as span:
            if span.recording:
                describe_call(span, route, body, task.content_bytes)
            call = UpstreamCall(
                body=codec.encode(route.upstream.dialect.adapt(body)),
                stream=False,
                headers={**task.headers, **span.headers},
            )
            try:
                answer = await self._read(task, call)
            except UpstreamError as error:
                error.message = route.upstream.redact(error.message)
                raise
            usage = read_usage(answer.get("usage"))
            self._metrics.count_usage(route.known_model, usage)
            if span.recording:
                conclude_summary(span, usage)
            return Summary(text=read_text(answer), usage=usage)

    def _compose(self, task: Task, window: Window) -> dict[str, Any]:
        request = task.request
        asked = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": REQUEST}]}
        body: dict[str, Any] = {name: request.extras[name] for name in _EXTRAS if name in request.extras}
        if request.fields.instructions is not None:
            body["instructions"] = request.fields.instructions
        if task.route.salted:
            body["cache_salt"] = hashlib.sha256(task.principal.encode("utf-8", "surrogatepass")).hexdigest()
        return {
            **body,
            "model": task.route.model,
            "max_output_tokens": self._config.max_summary_tokens,
            "stream": False,
            "store": False,
            "input": [*window.summarized(), asked],
        }

    async def _read(self, task: Task, call: UpstreamCall) -> dict[str, Any]:
        began, status = time.perf_counter(), "cancelled"
        try:
            exchange = await task.route.upstream.open(call)
            status = "200"
        except GatewayError as error:
            status = name_outcome(error)
            raise
        finally:
            metrics = self._metrics
            metrics.defer(metrics.upstream_requests_total.labels(status))
            metrics.defer(metrics.upstream_ttfb_seconds, time.perf_counter() - began)
        body = bytearray()
        try:
            while chunk := await exchange.read():
                body += chunk
                if len(body) > task.max_answer_bytes:
                    raise ResourceLimitExceeded("max_upstream_json_bytes", task.max_answer_bytes)
        finally:
            await exchange.close()
        try:
            answer = codec.decode(bytes(body))
        except ValueError:
            answer = None
        if not isinstance(answer, dict) or answer.get("status") in ("failed", "cancelled"):
            raise UpstreamError("The upstream answered 200 with what is no summary.", code="upstream_invalid_body")
        return answer


def read_text(answer: Mapping[str, Any]) -> str:
    """Return what the messages of a response object say; reasoning is no part of it."""
    output = answer.get("output")
    texts = [
        part["text"]
        for item in (output if isinstance(output, list) else ())
        if isinstance(item, dict) and item.get("type") == "message" and isinstance(item.get("content"), list)
        for part in item["content"]
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    ]
    return "".join(texts).strip()
