"""Bounds what all responses together have tools do at once, how long it takes and how much comes of it."""

import logging
import time
from collections.abc import Mapping

from gateway.config.schema import ToolsConfig
from gateway.ports import HostedCall, HostedResult, Listed, Listing, Toolkit
from gateway.protocol.hosted import fail_call
from gateway.telemetry.metrics import Metrics
from gateway.telemetry.names import LOGGER_TOOLS
from gateway.timing.limit import TimeLimit
from gateway.timing.permits import Permits

_logger = logging.getLogger(LOGGER_TOOLS)
_FAILED = "The tool failed unexpectedly."
_NOT_LISTED = "The server's tools could not be listed."


class Gate:
    """The places for listings and calls of the gateway's tools, over all responses of the process.

    A place is held only while a server is asked or a tool runs. Whoever waits for one is bounded by the deadline of its
    response, and leaves the line at once when it is cancelled.

    Args:
        config: the bounds.
        metrics: what is held, what waits, and how calls end.
    """

    def __init__(self, config: ToolsConfig, metrics: Metrics) -> None:
        self._config = config
        self._metrics = metrics
        self._permits = Permits(config.max_concurrent_materializations)

    def reconfigure(self, config: ToolsConfig) -> None:
        """Use other bounds from now on; what is held stays held."""
        self._config = config
        self._permits.resize(config.max_concurrent_materializations)

    async def fetch(self, listing: Listing, headers: Mapping[str, str]) -> Listed:
        """Ask a server for its tools."""
        outcome = "cancelled"
        try:
            await self._enter()
            try:
                listed = await listing.fetch(headers)
            finally:
                self._leave()
            outcome = "failed" if listed.error is not None else "completed"
        except Exception:
            _logger.exception("a listing of tools failed unexpectedly")
            outcome = "failed"
            return Listed(tools=(), offered=(), size=0, error=_NOT_LISTED)
        else:
            return listed
        finally:
            self._metrics.tool_listings_total.labels(outcome).inc()

    async def run(self, kit: Toolkit, call: HostedCall) -> HostedResult:
        """Run a call; what takes too long or returns too much has failed."""
        outcome = "cancelled"
        began = time.perf_counter()
        try:
            await self._enter()
            try:
                began = time.perf_counter()
                result = await self._run(kit, call)
            finally:
                self._leave()
            outcome = "failed" if result.failed else "completed"
            return result
        finally:
            kind = call.tool.kind
            self._metrics.tool_calls_total.labels(kind, outcome).inc()
            self._metrics.tool_call_seconds.labels(kind).observe(time.perf_counter() - began)

    async def _run(self, kit: Toolkit, call: HostedCall) -> HostedResult:
        config = self._config
        limit = TimeLimit(config.call_timeout_seconds)
        try:
            with limit:
                result = await kit.run(call)
        except TimeoutError:
            self._metrics.note_rejection("tools.call_timeout_seconds")
            return fail_call(
                call.tool, f"The tool did not end within {config.call_timeout_seconds:g} seconds and was given up."
            )
        except Exception:
            _logger.exception("a call of a tool failed unexpectedly")
            return fail_call(call.tool, _FAILED)
        if result.size <= config.max_output_bytes:
            self._metrics.tool_output_bytes.observe(result.size)
            return result
        self._metrics.note_rejection("tools.max_output_bytes")
        return fail_call(
            call.tool,
            f"The tool's output of {result.size} bytes is above the limit of {config.max_output_bytes} bytes.",
        )

    async def _enter(self) -> None:
        load = self._metrics.tool_load
        if not self._permits.take_at_once():
            load.waiting.move(1)
            try:
                await self._permits.take()
            finally:
                load.waiting.move(-1)
        load.running.move(1)

    def _leave(self) -> None:
        self._metrics.tool_load.running.move(-1)
        self._permits.give_back()
