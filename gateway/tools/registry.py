"""Joins the providers of tools into one, behind the gate."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from gateway.config.schema import GatewayConfig
from gateway.ports import (
    ApprovedCall,
    HostedCall,
    HostedResult,
    HostedTool,
    Listed,
    Listing,
    ToolContext,
    Toolkit,
    Tools,
)
from gateway.telemetry.names import LOGGER_TOOLS
from gateway.timing.limit import TimeLimit
from gateway.tools.gate import Gate

_logger = logging.getLogger(LOGGER_TOOLS)
# The client waits for it.
_CLOSE_SECONDS = 2.0


class ToolRegistry:
    """All tools that the gateway runs itself.

    Args:
        providers: each runs types of its own.
        gate: bounds what they do.
    """

    def __init__(self, providers: Sequence[Tools], gate: Gate) -> None:
        self._providers = providers
        self._gate = gate

    def reconfigure(self, config: GatewayConfig) -> None:
        """Use other bounds from now on."""
        self._gate.reconfigure(config.tools)

    def runs(self, kind: str) -> bool:
        """Whether a provider runs tools of this declared type."""
        return any(provider.runs(kind) for provider in self._providers)

    def check(self, declared: Sequence[tuple[str, Mapping[str, Any]]]) -> None:
        """Have each provider check its declarations.

        Raises:
            InvalidRequest: names the parameter at fault.
        """
        for provider in self._providers:
            own = [(path, tool) for path, tool in declared if provider.runs(tool["type"])]
            if own:
                provider.check(own)

    def open(self, declared: Sequence[Mapping[str, Any]], context: ToolContext) -> Toolkit:
        """Return the toolkits of one response as one.

        Raises:
            InvalidRequest: the input does not fit the tools.
        """
        kits = []
        for provider in self._providers:
            own = [tool for tool in declared if provider.runs(tool["type"])]
            if own:
                kits.append(provider.open(own, context))
        return _JoinedToolkit(kits, self._gate)

    def show(self, tool: Mapping[str, Any]) -> dict[str, Any]:
        """Return a declaration as its provider lets it be echoed."""
        for provider in self._providers:
            if provider.runs(tool["type"]):
                return provider.show(tool)
        return dict(tool)

    async def close(self) -> None:
        """Close what the providers keep."""
        for provider in self._providers:
            await provider.close()


class _JoinedToolkit:
    """The toolkits of one response; which of them runs a tool is known by the tool's function name."""

    def __init__(self, kits: Sequence[Toolkit], gate: Gate) -> None:
        self._kits = kits
        self._gate = gate
        self._owners: dict[str, Toolkit] = {}

    @property
    def offered(self) -> Sequence[HostedTool]:
        return [tool for kit in self._kits for tool in self._own(kit, kit.offered)]

    @property
    def listings(self) -> Sequence[Listing]:
        return [_GatedListing(listing, kit, self) for kit in self._kits for listing in kit.listings]

    @property
    def decided(self) -> Sequence[ApprovedCall]:
        decided = [(kit, call) for kit in self._kits for call in kit.decided]
        for kit, call in decided:
            self._own(kit, [call.tool])
        return [call for _, call in decided]

    async def run(self, call: HostedCall) -> HostedResult:
        return await self._gate.run(self._owners[call.tool.function["name"]], call)

    async def fetch(self, listing: Listing, kit: Toolkit, headers: Mapping[str, str]) -> Listed:
        listed = await self._gate.fetch(listing, headers)
        self._own(kit, listed.offered)
        return listed

    async def close(self) -> None:
        for kit in self._kits:
            try:
                with TimeLimit(_CLOSE_SECONDS):
                    await kit.close()
            except Exception:
                # The response is made; that a tool cannot let go of it is none of its client's.
                _logger.exception("a toolkit could not be closed")

    def _own(self, kit: Toolkit, tools: Sequence[HostedTool]) -> Sequence[HostedTool]:
        for tool in tools:
            self._owners[tool.function["name"]] = kit
        return tools


class _GatedListing:
    """A listing that waits for its place."""

    def __init__(self, listing: Listing, kit: Toolkit, joined: _JoinedToolkit) -> None:
        self._listing = listing
        self._kit = kit
        self._joined = joined

    @property
    def label(self) -> str:
        return self._listing.label

    async def fetch(self, headers: Mapping[str, str]) -> Listed:
        return await self._joined.fetch(self._listing, self._kit, headers)
