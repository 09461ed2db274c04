"""Compaction: the window of a response is replaced by a note before it grows too long for the model."""

import logging
from collections.abc import Callable, Sequence
from typing import Any

from gateway.config.schema import CompactionConfig
from gateway.engine.notes import Notes
from gateway.engine.plan import Plan
from gateway.engine.routing import Route
from gateway.engine.summary import Summarizer, Summary, Task
from gateway.engine.telling import Telling
from gateway.ports import Sealer
from gateway.protocol.compaction import COMPACTION, Window, build_window, estimate_tokens
from gateway.protocol.errors import CompactionFailed, GatewayError, InvalidRequest, ResourceLimitExceeded
from gateway.protocol.events import Event
from gateway.protocol.requests import CreateRequest
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.names import LOGGER_ENGINE
from gateway.telemetry.tracing import Tracing

_logger = logging.getLogger(LOGGER_ENGINE)

Item = dict[str, Any]

# What stands around a note in the longest event that repeats it, in bytes.
_AROUND = 256
# When windows of agents are compacted if neither request, nor configuration, nor server tells.
_LONG = 100_000


class Compaction:
    """Everything that windows, notes and summaries need, for all responses.

    Args:
        config: bounds.
        sealer: seals notes; None where there are no keys, and so no compaction.
        metrics: what is counted.
        tracing: spans of summaries.

    Attributes:
        notes: what compaction items hold.
        summarizer: writes notes.
    """

    def __init__(self, config: CompactionConfig, sealer: Sealer | None, metrics: Metrics, tracing: Tracing) -> None:
        self._available = sealer is not None and config.mode != "off"
        self._metrics = metrics
        self.notes = Notes(sealer)
        self.summarizer = Summarizer(config, metrics, tracing)
        self.reconfigure(config)

    def reconfigure(self, config: CompactionConfig) -> None:
        """Use other bounds for every response that begins from now on."""
        self._config = config
        self.summarizer.reconfigure(config)

    @property
    def threshold(self) -> int | None:
        """Tokens for requests that name none themselves; None where none may ask for compaction."""
        return self._config.default_threshold if self._available else None

    def find_threshold(self, request: CreateRequest, route: Route) -> int | None:
        """Return from how many tokens on the windows of agents are compacted; None for never."""
        if not self._available:
            return None
        given = request.threshold or self._config.multi_agent_default_threshold
        if given:
            return given
        length = route.upstream.length_of(route.model)
        return _LONG if length is None else length * 4 // 5

    def find_window(
        self, principal: str, request: CreateRequest, items: Sequence[Item], first_new: int
    ) -> Window | None:
        """Return what a model is shown of a conversation, in the engine's form, where that is not simply everything.

        Args:
            principal: who brings it.
            request: the request at hand.
            items: all of the conversation, oldest first.
            first_new: where the input of the request begins.

        Raises:
            InvalidRequest: a note in it belongs to somebody else, or nothing is there to be compacted.
            Unavailable: the sealing keys cannot be had.
        """
        if request.compacts and not items:
            raise nothing_to_compact()
        if not (request.threshold or request.compacts or COMPACTION in [item["type"] for item in items]):
            return None
        notes = self.notes.read(principal, items, first_new=first_new)
        return build_window(items, notes, self._config.keep_user_bytes).carry(request.carry)

    def begin(self, plan: Plan) -> "Compactor | None":
        """Return what looks after the window of one response, if its request asks for that."""
        request = plan.request
        if plan.window is None or not (request.threshold or request.compacts):
            return None
        return Compactor(plan, plan.window, self, self._config)

    @property
    def max_failures(self) -> int:
        """How often in a row a window may be left as it is."""
        return self._config.max_failures

    @property
    def keep_bytes(self) -> int | None:
        """How much of the user's messages stays word for word; None for all."""
        return self._config.keep_user_bytes

    def take(
        self, plan: Plan, summary: Summary, window: Window | None, tell: Callable[[str], list[Event]]
    ) -> list[Event]:
        """Take the note that a model has written, and return what tells of it.

        Args:
            plan: the response.
            summary: the note.
            window: what it is made of; None where its length does not matter.
            tell: makes the events of the sealed note.

        Raises:
            CompactionFailed: it says nothing, or takes no less room than what it is made of.
            ResourceLimitExceeded: it is too long for the response.
        """
        count = self._metrics.compactions_total.labels
        plan.turn.count(summary.usage)
        check_summary(summary, window, count)
        token = self.notes.write(plan.caller.principal, summary.text)
        # The longest event repeats the note, with little beside it.
        if len(token) + _AROUND + plan.caller.overhead > plan.settings.limits.max_stream_event_bytes:
            count("too_large").inc()
            raise plan.settings.limits.exceeded("max_stream_event_bytes")
        try:
            told = tell(token)
        except ResourceLimitExceeded:
            count("too_large").inc()
            raise
        count("compacted").inc()
        return told


def build_task(plan: Plan) -> Task:
    """Return for whom and of what notes of a response are written."""
    return Task(
        principal=plan.caller.principal,
        headers=plan.caller.headers,
        request=plan.request,
        route=plan.route,
        max_answer_bytes=plan.settings.limits.max_upstream_json_bytes,
        content_bytes=plan.settings.content_bytes,
    )


def nothing_to_compact() -> InvalidRequest:
    """Return the error for an empty conversation that is to be compacted."""
    return InvalidRequest(
        "There is nothing to compact: 'input' is empty, and so is what 'previous_response_id' names.",
        code="missing_required_parameter",
        param="input",
    )


class Compactor:
    """The window of one response, from round to round.

    Args:
        plan: the response.
        window: its window before the first round, in the engine's form.
        compaction: writes and seals notes.
        config: bounds.
    """

    def __init__(self, plan: Plan, window: Window, compaction: Compaction, config: CompactionConfig) -> None:
        self._plan = plan
        self._window = window
        self._compaction = compaction
        self._config = config
        self._failures = 0
        self._taken = 0
        request = plan.request
        tools = [tool.function for tool in request.toolset.offered]
        self._tokens = self._fixed = estimate_tokens([request.fields.instructions, tools])

    async def relieve(self, items: list[Item], telling: Telling) -> list[Item]:
        """Return the items for the next round, compacted and told of if they were too many.

        A window that cannot be compacted goes on as it is.

        Args:
            items: what the model would be shown: the window so far, and what came behind it since the last call.
            telling: takes the events, and knows the round before.

        Raises:
            CompactionFailed: that happened `[compaction] max_failures` times in a row.
        """
        added = estimate_tokens(items[self._taken :])
        self._tokens += added
        self._taken = len(items)
        self._window = self._window.follow(items)
        used = 0 if telling.round.usage is None else telling.round.usage.input_tokens + added
        threshold = self._plan.request.threshold
        if threshold is None or max(self._tokens, used) <= threshold or not self._window.is_compactable:
            return items
        try:
            await self._compact(telling, smaller=True)
        except GatewayError as error:
            self._note_failure(error)
            return items
        self._failures = 0
        shown = self._window.show()
        self._taken = len(shown)
        self._tokens = self._fixed + estimate_tokens(shown)
        return shown

    async def compact(self, telling: Telling) -> None:
        """Compact the window because the request asks for nothing else.

        Raises:
            GatewayError: it cannot be compacted.
        """
        await self._compact(telling, smaller=False)

    async def _compact(self, telling: Telling, *, smaller: bool) -> None:
        compaction, plan = self._compaction, self._plan
        summary = await compaction.summarizer.summarize(build_task(plan), self._window)
        told = compaction.take(plan, summary, self._window if smaller else None, plan.turn.tell_compaction)
        self._window = self._window.compact(summary.text, self._config.keep_user_bytes)
        telling.keep(told)
        await telling.send()

    def _note_failure(self, error: GatewayError) -> None:
        self._failures += 1
        if (failed := failed_too_often(self._failures, self._config.max_failures, error)) is not None:
            raise failed from error


def failed_too_often(failures: int, most: int, error: GatewayError) -> CompactionFailed | None:
    """Note that a window stays as it is, and return the error of one that has been left so too often in a row.

    Args:
        failures: how often in a row that has happened now.
        most: how often it may not happen.
        error: why it did.
    """
    _logger.info("a window was not compacted: %s", error.message)
    if failures < most:
        return None
    return CompactionFailed(
        f"The history could not be compacted {failures} times in a row ([compaction] max_failures): {error.message}",
        bound="compaction.max_failures",
    )


def check_summary(summary: Summary, window: Window | None, count: Callable[[str], Any]) -> None:
    """Check that a note says something, and takes less room than what it is made of.

    Args:
        summary: the note.
        window: what it is made of; None where its length does not matter.
        count: the counter of an outcome.

    Raises:
        CompactionFailed: it does not.
    """
    if not summary.text:
        count("empty").inc()
        raise CompactionFailed("The model wrote no summary of the history.")
    if window is not None and estimate_tokens(summary.text) >= estimate_tokens(window.summarized()):
        count("too_long").inc()
        raise CompactionFailed("The model's summary is no shorter than the history itself.")
