"""What is settled before a response is made: who asks, what for, and within which bounds."""

from collections.abc import Callable
from typing import Any

from msgspec import Struct

from gateway.config.schema import GatewayConfig, MultiAgentConfig, ResponsesConfig
from gateway.engine.commit import Lineage
from gateway.engine.delivery import Keeper
from gateway.engine.routing import Route
from gateway.ports import Toolkit
from gateway.protocol.agents.asked import AgentsPolicy
from gateway.protocol.agents.tree import Tree
from gateway.protocol.compaction import Window
from gateway.protocol.limits import Limits
from gateway.protocol.requests import CreateRequest
from gateway.protocol.turn import Turn
from gateway.timing.limit import SharedTimer


class Caller(Struct, frozen=True, kw_only=True):
    """Who asks, and how.

    Attributes:
        principal: owner of what is stored.
        transport: `json`, `sse` or `websocket`, for metrics.
        headers: headers to send upstream, already filtered by the allowlist.
        overhead: bytes the transport adds to each event, which count against its limit.
        progress_seconds: a silence after which the client is told again that its response is in progress; 0 for none.
    """

    principal: str
    transport: str
    headers: dict[str, str]
    overhead: int = 0
    progress_seconds: float = 0


class RunSettings(Struct, frozen=True, kw_only=True):
    """Bounds of a run.

    Attributes:
        limits: the four response limits.
        commit_after: times when a stream is started although the upstream has not accepted the call yet.
        deadline_seconds: longest life of a run.
        max_rounds: most inference calls.
        cuts_items: whether a steered response ends behind an item, although the model goes on.
        content_bytes: how much of each part of an inference call's content its span may tell; 0 for nothing.
    """

    limits: Limits
    commit_after: SharedTimer
    deadline_seconds: float
    max_rounds: int
    cuts_items: bool = False
    content_bytes: int = 0

    @classmethod
    def read(cls, config: GatewayConfig) -> "RunSettings":
        """Return the bounds that a configuration sets."""
        responses = config.responses
        return cls(
            limits=Limits(
                max_retained_bytes=responses.max_retained_bytes,
                max_upstream_json_bytes=responses.max_upstream_json_bytes,
                max_upstream_sse_line_bytes=responses.max_upstream_sse_line_bytes,
                max_stream_event_bytes=responses.max_stream_event_bytes,
            ),
            commit_after=SharedTimer(config.server.commit_after_seconds),
            deadline_seconds=config.engine.run_deadline_seconds,
            max_rounds=config.engine.max_rounds,
            cuts_items=config.websocket.steer.cut == "item",
            content_bytes=config.telemetry.capture_content_max_bytes if config.telemetry.capture_content else 0,
        )


class Plan(Struct, frozen=True, kw_only=True):
    """A checked request with everything a run needs.

    Attributes:
        caller: who asks.
        request: the request.
        inputs: the new input items, references resolved, as they will be stored.
        items: the effective input in the engine's form: history, then the new items.
        turn: the response, not yet begun.
        lineage: what it continues.
        route: the inference server.
        settings: bounds of the run, as they were when the turn was made.
        open_tools: opens the toolkit of the response; None where the gateway runs no tools for it.
        window: what `items` are made of, if the history was compacted or is to be.
        keeper: what stores the finished response, where that is not for the engine's committer.
        tree: the agents that make it; None where there are none, and the model answers by itself.
    """

    caller: Caller
    request: CreateRequest
    inputs: list[dict[str, Any]]
    items: list[dict[str, Any]]
    turn: Turn
    lineage: Lineage
    route: Route
    settings: RunSettings
    open_tools: Callable[[], Toolkit] | None = None
    window: Window | None = None
    keeper: Keeper | None = None
    tree: Tree | None = None

    def carry(self, items: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return items of this response in the engine's form."""
        return self.request.toolset.carriage.carry(items)

    @property
    def response_id(self) -> str:
        """The id of the response to be made."""
        return self.turn.response.id

    async def abandon(self) -> None:
        """Give up what it holds: nothing will be made from it."""
        if self.lineage.hold is not None:
            await self.lineage.hold.release()


def read_policy(config: MultiAgentConfig, *, can_seal: bool) -> AgentsPolicy | None:
    """Return what the operator decided about trees of agents; None where there are none."""
    if not config.enabled:
        return None
    return AgentsPolicy(
        needs_header=config.require_beta_header,
        default_concurrent=config.default_max_concurrent_subagents,
        max_concurrent=config.max_concurrent_subagents_ceiling,
        can_seal=can_seal or config.message_visibility == "plain",
    )


def refers_to_items(request: CreateRequest) -> bool:
    """Tell whether a request is made of something stored, besides what it continues."""
    return any(item["type"] == "item_reference" for item in request.items)


def choose_summary_mode(request: CreateRequest, responses: ResponsesConfig) -> Any:
    """Return how reasoning is told as summaries too."""
    mode = responses.reasoning_summary
    if mode == "instead" and (request.fields.reasoning or {}).get("summary") is None:
        return "off"
    return mode
