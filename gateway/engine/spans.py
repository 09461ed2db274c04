"""What the spans of a run tell; asked only where one is recorded."""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.engine.messages import build_messages, build_text
from gateway.engine.plan import Plan
from gateway.engine.routing import Route
from gateway.protocol import codec
from gateway.protocol.announcer import Round
from gateway.protocol.errors import GatewayError, ResourceLimitExceeded
from gateway.protocol.items import CustomToolCall, FunctionCall
from gateway.protocol.response import Usage
from gateway.protocol.turn import Turn
from gateway.telemetry import names
from gateway.telemetry.tracing import Attribute, Span

_API_TYPE = "responses"
_LONGEST_NAME = 128
_REASONS = {"max_output_tokens": "length"}


def describe_agent(span: Span, plan: Plan) -> None:
    """Say which response an agent makes."""
    span.annotate(
        {
            **_describe_operation(names.AGENT_OPERATION, plan.route),
            names.ATTR_REQUEST_MODEL: plan.request.model[:_LONGEST_NAME],
            names.ATTR_RESPONSE_ID: plan.response_id,
        }
    )


def conclude_agent(span: Span, turn: Turn, error: Exception | None, *, cut_off: bool) -> None:
    """Say what an agent used, and why it failed if it did; `cut_off` if the gateway ended it."""
    span.annotate(_describe_usage(turn.usage))
    if isinstance(error, ResourceLimitExceeded):
        limit: Mapping[str, Attribute] = {names.ATTR_LIMIT_KEY: error.resource, names.ATTR_LIMIT_BYTES: error.limit}
        span.note(names.EVENT_LIMIT_BREACH, limit)
    if cut_off:
        span.note(names.EVENT_CANCELLED, {names.ATTR_CANCELLED_BY: names.CANCELLED_BY_GATEWAY})
    if error is not None:
        span.fail(error.code if isinstance(error, GatewayError) else type(error).__name__)


def describe_call(span: Span, route: Route, body: Mapping[str, Any], content_bytes: int) -> None:
    """Say what an inference server is asked.

    Args:
        span: of the call.
        route: the server.
        body: what is sent to it.
        content_bytes: how much may be told of each part of its content; 0 for nothing.
    """
    address, port = route.upstream.address
    span.annotate(
        {
            **_describe_operation(names.CHAT_OPERATION, route),
            names.ATTR_SERVER_ADDRESS: address,
            names.ATTR_SERVER_PORT: port,
            names.ATTR_REQUEST_MODEL: route.model[:_LONGEST_NAME],
            names.ATTR_REQUEST_STREAM: body["stream"],
            names.ATTR_REQUEST_MAX_TOKENS: body.get("max_output_tokens"),
            names.ATTR_REQUEST_TEMPERATURE: body.get("temperature"),
            names.ATTR_REQUEST_TOP_P: body.get("top_p"),
        }
    )
    if content_bytes:
        instructions = body.get("instructions")
        told = {
            names.ATTR_INSTRUCTIONS: build_text(instructions) if instructions else None,
            names.ATTR_INPUT_MESSAGES: build_messages(body["input"]),
            names.ATTR_TOOL_DEFINITIONS: body.get("tools"),
        }
        span.annotate({name: _cut(value, content_bytes) for name, value in told.items() if value})


def conclude_call(
    span: Span, round_: Round, *, whole: bool, first_chunk_seconds: float | None, content_bytes: int
) -> None:
    """Say how an inference server answered.

    Args:
        span: of the call.
        round_: what was read of the answer.
        whole: whether the answer came to its end.
        first_chunk_seconds: time from the call to its first output, if it streamed any.
        content_bytes: as for `describe_call`.
    """
    output = [slot.final or slot.render("incomplete") for slot in round_.slots if slot.announced]
    reason = _find_reason(round_, output) if whole else "error"
    span.annotate(
        {
            names.ATTR_RESPONSE_ID: round_.response_id,
            names.ATTR_RESPONSE_MODEL: round_.model,
            names.ATTR_FINISH_REASONS: (reason,) if whole else None,
            names.ATTR_TIME_TO_FIRST_CHUNK: first_chunk_seconds,
            **_describe_usage(round_.usage),
        }
    )
    if content_bytes and output:
        messages = build_messages(output, finish_reason=reason)
        span.annotate({names.ATTR_OUTPUT_MESSAGES: _cut(messages, content_bytes)})


def conclude_summary(span: Span, usage: Usage | None) -> None:
    """Say that a call was made to have a history summarized, and what it took."""
    span.annotate({names.ATTR_CALL_PURPOSE: names.PURPOSE_COMPACTION, **_describe_usage(usage)})


def _find_reason(round_: Round, output: Sequence[Any]) -> str:
    """Return why a model stopped, in the words of the conventions."""
    if round_.reason is not None:
        return _REASONS.get(round_.reason, round_.reason)
    return "tool_call" if any(isinstance(item, FunctionCall | CustomToolCall) for item in output) else "stop"


def _describe_operation(operation: str, route: Route) -> Mapping[str, Attribute]:
    return {
        names.ATTR_OPERATION: operation,
        names.ATTR_PROVIDER: route.upstream.dialect.name,
        names.ATTR_API_TYPE: _API_TYPE,
    }


def _describe_usage(usage: Usage | None) -> Mapping[str, Attribute]:
    if usage is None:
        return {}
    return {
        names.ATTR_INPUT_TOKENS: usage.input_tokens,
        names.ATTR_CACHED_TOKENS: usage.input_tokens_details.cached_tokens,
        names.ATTR_OUTPUT_TOKENS: usage.output_tokens,
        names.ATTR_REASONING_TOKENS: usage.output_tokens_details.reasoning_tokens,
    }


def _cut(value: Any, most: int) -> str:
    """Return the beginning of a value as JSON, cut where the bytes end, as the SDK itself cuts long attributes."""
    return codec.encode(value)[:most].decode(errors="ignore")
