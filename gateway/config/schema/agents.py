"""The keys of multi-agent responses: who may run them, how large a tree of agents grows, and how long it works."""

from typing import Annotated, Literal

from gateway.config.kinds import Count, CountOrZero, Duration, Size, doc
from gateway.config.schema.section import Section
from gateway.config.units import KIB, MIB


class MultiAgentConfig(Section, frozen=True, kw_only=True):
    """Responses in which a model may start agents of its own, as `multi_agent` of a request asks for."""

    enabled: Annotated[bool, doc("Whether requests may ask for it; otherwise they are refused.", live=True)] = True
    require_beta_header: Annotated[
        bool,
        doc(
            "Whether the request, or the upgrade of its WebSocket, must carry the header `OpenAI-Beta: "
            "responses_multi_agent=v1`, as the hosted service asks for.",
            live=True,
        ),
    ] = True
    default_max_concurrent_subagents: Annotated[
        Count,
        doc("Agents besides the root that may be active at once, where a request names no number.", live=True),
    ] = 3
    max_concurrent_subagents_ceiling: Annotated[
        CountOrZero, doc("The largest such number a request may name; 0 sets no bound.", live=True)
    ] = 0
    max_agents_total: Annotated[
        CountOrZero,
        doc("Agents of one tree besides the root, those that have ended included; 0 sets no bound.", live=True),
    ] = 64
    max_depth: Annotated[
        CountOrZero, doc("How many generations below the root may be started; 0 sets no bound.", live=True)
    ] = 8
    max_rounds_per_turn: Annotated[
        Count, doc("Inferences of one agent from its task to its answer; beyond, it has failed.", live=True)
    ] = 64
    max_rounds_per_response: Annotated[
        Count, doc("Inferences of all agents within one response; beyond, the response fails.", live=True)
    ] = 512
    run_deadline_s: Annotated[
        Duration,
        doc(
            "Longest life of a response, in the place of `engine.run_deadline_seconds`; what is not finished then "
            "fails.",
            live=True,
        ),
    ] = 3600.0
    wait_min_ms: Annotated[
        Count, doc("Shortest `wait_agent`, in milliseconds; a shorter one is made as long.", live=True)
    ] = 10_000
    wait_default_ms: Annotated[
        Count, doc("Length of a `wait_agent` for which the model names none, in milliseconds.", live=True)
    ] = 30_000
    wait_max_ms: Annotated[
        Count, doc("Longest `wait_agent`, in milliseconds; a longer one is made as short.", live=True)
    ] = 3_600_000
    max_tree_bytes: Annotated[
        Size,
        doc("Histories and mail of all agents of a tree, as JSON; a response that grows beyond it fails.", live=True),
    ] = 32 * MIB
    max_mail_bytes: Annotated[
        Size, doc("Longest message of one agent to another; a longer one is an error to its author.", live=True)
    ] = 256 * KIB
    max_mailbox_entries: Annotated[
        Count, doc("Messages that may wait for one agent; a further one is an error to its author.", live=True)
    ] = 256
    quiescence_grace_ms: Annotated[
        CountOrZero,
        doc(
            "How long a response on a WebSocket that waits for nothing but its client's tools stays open for their "
            "outputs, in milliseconds.",
            live=True,
        ),
    ] = 250
    message_visibility: Annotated[
        Literal["opaque", "plain"],
        doc(
            "How clients see what agents write to each other. opaque: sealed with `security.seal_keys`, as the hosted "
            "service does; plain: as text, which needs no keys.",
            live=True,
        ),
    ] = "opaque"
    finish_unanswered_root: Annotated[
        bool,
        doc(
            "Whether a root that has mail but gave no answer is asked once more before the response ends.",
            live=True,
        ),
    ] = True
