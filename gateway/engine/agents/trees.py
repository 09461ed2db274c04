"""Where the agents of a response come from: what it continues, or nowhere."""

from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import structs

from gateway.config.schema import MultiAgentConfig
from gateway.engine.archive import decode_item
from gateway.engine.commit import Lineage
from gateway.ports import Sealer, StoredAgent
from gateway.protocol import codec
from gateway.protocol.agents.action_slots import Seal
from gateway.protocol.agents.asked import AgentsPolicy, AgentsRequest, agents_off, choose_limit, refuse_beside_agents
from gateway.protocol.agents.bounds import Bounds
from gateway.protocol.agents.tree import Tree
from gateway.protocol.compaction import read_threshold
from gateway.protocol.errors import InternalError, InvalidRequest
from gateway.protocol.requests import CreateRequest
from gateway.protocol.tools import list_loaded

Item = dict[str, Any]

_KIND = "agent_message"
_LIMIT = "multi_agent.max_concurrent_subagents"
_LISTING, _REQUEST, _DECISION = "mcp_list_tools", "mcp_approval_request", "mcp_approval_response"


class Trees:
    """Makes the trees of responses, within the bounds of the configuration in effect.

    Args:
        config: bounds.
        sealer: seals what agents write to each other; None where there are no keys.
    """

    def __init__(self, config: MultiAgentConfig, sealer: Sealer | None) -> None:
        self._sealer = sealer
        self.reconfigure(config)

    def reconfigure(self, config: MultiAgentConfig) -> None:
        """Use other bounds for every tree from now on."""
        self._is_open = config.message_visibility == "plain"
        self._bounds = Bounds(
            max_agents_total=config.max_agents_total,
            max_depth=config.max_depth,
            max_rounds_per_activation=config.max_rounds_per_turn,
            wait_min_ms=config.wait_min_ms,
            wait_default_ms=config.wait_default_ms,
            wait_max_ms=config.wait_max_ms,
            max_mail_bytes=config.max_mail_bytes,
            max_mailbox_entries=config.max_mailbox_entries,
            max_tree_bytes=config.max_tree_bytes,
            finish_unanswered_root=config.finish_unanswered_root,
            tell_tasks=self._is_open,
        )

    def find(self, request: CreateRequest, lineage: Lineage, policy: AgentsPolicy | None) -> Tree:
        """Return the agents that a response begins with, without its input.

        What continues a tree is one. A conversation without agents becomes that of the root.

        Args:
            request: the request; it asks for agents, or continues some.
            lineage: what it continues.
            policy: what the operator decided; None where there are to be no agents.

        Raises:
            InvalidRequest: it would have the agents it continues vanish, or fewer of them be active than are; or it
                has what a tree cannot be combined with.
            InternalError: another version of the gateway stored the agents.
        """
        if lineage.tree is None:
            assert request.agents is not None, "whoever wants no agents has none"
            return Tree.adopt(
                [decode_item(item) for item in lineage.history], self._bind(request.agents.max_concurrent)
            )
        if request.agents is None:
            return self._inherit(request, lineage.tree, policy)
        tree = _restore(lineage.tree, self._bind(request.agents.max_concurrent))
        if tree.active > tree.bounds.max_concurrent:
            raise InvalidRequest(
                f"Invalid value for '{_LIMIT}': {tree.active} agents besides the root are active in the previous "
                f"response, and {tree.bounds.max_concurrent} are allowed now.",
                code="invalid_value",
                param=_LIMIT,
            )
        return tree

    def seal_for(self, principal: str) -> Seal | None:
        """Return what makes tokens of what agents write to each other; None where clients see the text."""
        sealer = self._sealer
        if self._is_open or sealer is None:
            return None
        return lambda text: sealer.seal(principal, _KIND, text.encode("utf-8", "surrogatepass"))

    def _inherit(self, request: CreateRequest, rows: Sequence[StoredAgent], policy: AgentsPolicy | None) -> Tree:
        if request.fields.multi_agent is not None:
            raise InvalidRequest(
                "'multi_agent' cannot be switched off: the previous response is of a tree of agents. Leave it out, "
                "or continue a response from before the agents.",
                code="invalid_value",
                param="multi_agent",
            )
        if policy is None:
            raise agents_off()
        refuse_beside_agents(request.fields)
        tree = _restore(rows, self._bounds, inherits=True)
        choose_limit(tree.bounds.max_concurrent, policy)
        return tree

    def _bind(self, limit: int) -> Bounds:
        return structs.replace(self._bounds, max_concurrent=limit)


def inherit_agents(request: CreateRequest, tree: Tree) -> CreateRequest:
    """Return a request that turned out to continue a tree of agents, as if it had asked for that."""
    threshold = read_threshold(request.fields.context_management, None)
    return structs.replace(request, agents=AgentsRequest(tree.bounds.max_concurrent), threshold=threshold)


def list_known(tree: Tree) -> list[Item]:
    """Return what all agents know, one after the other; what several have heard of tools is there once."""
    known, brought = [], set()
    for item in (item for agent in tree.agents.values() for item in agent.history):
        if list_loaded([item]):
            content = codec.encode(item)
            if content in brought:
                continue
            brought.add(content)
        known.append(item)
    return known


def list_decided(known: Iterable[Item], new: Sequence[Item]) -> tuple[list[Item], int]:
    """Return what the gateway's own tools have to know of a tree: listings, and the calls that are approved now.

    Args:
        known: what the agents know.
        new: the input of the request.

    Returns:
        Items in the client's form, and where the input begins among them.
    """
    decided = {item.get("approval_request_id") for item in new if item["type"] == _DECISION}
    before = [
        item for item in known if item["type"] == _LISTING or (item["type"] == _REQUEST and item.get("id") in decided)
    ]
    return [*before, *new], len(before)


def _restore(rows: Sequence[StoredAgent], bounds: Bounds, *, inherits: bool = False) -> Tree:
    try:
        return Tree.restore(rows, bounds, inherits=inherits)
    except ValueError as error:
        raise InternalError(
            "The agents of the previous response cannot be read; another version of the gateway may have stored them."
        ) from error
