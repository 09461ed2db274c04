"""What the engine needs from the outside world, as Protocols.

The rooms of floor 5 implement these and never import each other; `app` joins them.
"""

from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from gateway.ports.background import (
    BackgroundRuns,
    Claim,
    EventBatch,
    EventSweep,
    RunBegin,
    RunCancel,
    RunEnd,
    RunHandover,
    RunLog,
    RunStart,
    RunState,
    RunTakeover,
    UnfinishedRun,
)
from gateway.ports.callers import LOCAL, ApiKey, Authenticator, Identity, KeyBook, KeysUnreadable
from gateway.ports.conversations import (
    ConversationAddition,
    ConversationBounds,
    ConversationClaim,
    ConversationDeletion,
    ConversationStore,
    ConversationTurn,
    ConversationUpdate,
    ItemPage,
    ItemRemoval,
    NewConversation,
    StoredConversation,
    conversation_lease,
)
from gateway.ports.leases import Lease, LeaseClaim, LeaseRelease, LeaseRenewal, Leases
from gateway.ports.relays import RelayedAnswer, RelayedCall
from gateway.ports.storage import (
    Deletion,
    History,
    Store,
    StoreHealth,
    UsageCount,
    UsageFlush,
)
from gateway.ports.stored import StoredItem, StoredResponse
from gateway.ports.tools import (
    ApprovedCall,
    HostedCall,
    HostedKind,
    HostedResult,
    HostedTool,
    Listed,
    Listing,
    ToolContext,
    Toolkit,
    Tools,
)
from gateway.protocol.agents.stored import StoredAgent

__all__ = [
    "LOCAL",
    "ApiKey",
    "ApprovedCall",
    "Authenticator",
    "BackgroundRuns",
    "Claim",
    "Clock",
    "ConversationAddition",
    "ConversationBounds",
    "ConversationClaim",
    "ConversationDeletion",
    "ConversationStore",
    "ConversationTurn",
    "ConversationUpdate",
    "Deletion",
    "Dialect",
    "EventBatch",
    "EventSweep",
    "History",
    "HostedCall",
    "HostedKind",
    "HostedResult",
    "HostedTool",
    "Identity",
    "Ids",
    "ItemPage",
    "ItemRemoval",
    "KeyBook",
    "KeyStore",
    "KeysUnreadable",
    "Lease",
    "LeaseClaim",
    "LeaseRelease",
    "LeaseRenewal",
    "Leases",
    "Listed",
    "Listing",
    "NewConversation",
    "RelayedAnswer",
    "RelayedCall",
    "RunBegin",
    "RunCancel",
    "RunEnd",
    "RunHandover",
    "RunLog",
    "RunStart",
    "RunState",
    "RunTakeover",
    "SealMismatch",
    "Sealer",
    "Store",
    "StoreHealth",
    "StoredAgent",
    "StoredConversation",
    "StoredItem",
    "StoredResponse",
    "TokenQuestion",
    "ToolContext",
    "Toolkit",
    "Tools",
    "UnfinishedRun",
    "Upstream",
    "UpstreamCall",
    "UpstreamExchange",
    "UpstreamHealth",
    "UsageCount",
    "UsageFlush",
    "conversation_lease",
]

# ---------------------------------------------------------------- time and ids


class Clock(Protocol):
    """Time, so that tests can own it."""

    def now(self) -> float:
        """Seconds since the Unix epoch."""
        ...

    def monotonic(self) -> float:
        """Seconds on a clock that never goes back."""
        ...


class Ids(Protocol):
    """Mints the gateway's own ids."""

    def mint(self, prefix: str) -> str:
        """Return a new id `<prefix>_<32 hex digits>`, time-ordered and unique across processes."""
        ...


# ---------------------------------------------------------------- upstream


class UpstreamCall(Struct, frozen=True, kw_only=True):
    """One inference call.

    Attributes:
        body: the JSON body, encoded.
        stream: whether the body asks for an event stream.
        headers: extra headers, already filtered by the allowlist, trace context included.
    """

    body: bytes
    stream: bool
    headers: Mapping[str, str] = {}


class UpstreamExchange(Protocol):
    """An accepted call (status 200) whose body is still being read."""

    @property
    def is_event_stream(self) -> bool:
        """Whether the upstream answered with `text/event-stream`."""
        ...

    @property
    def is_translated(self) -> bool:
        """Whether what is read is a translation; the limits of lines and bodies were held against the original."""
        ...

    def take(self) -> bytes | None:
        """Return whatever has arrived, at least one byte, `b""` at the clean end of the body, or None: wait.

        Raises:
            UpstreamError: the body broke off.
            UpstreamTimeout: nothing arrived within the idle timeout, or the total timeout passed.
        """
        ...

    def arrival(self) -> Awaitable[None]:
        """Return what is done once there may be something to take; to be called, and awaited, when there is nothing."""
        ...

    async def read(self) -> bytes:
        """Return what `take` does as soon as it returns something.

        Raises:
            UpstreamError: as `take`.
        """
        ...

    def retire(self) -> None:
        """Say that the answer is complete: the connection is reused if the body ends at once, else closed."""
        ...

    async def close(self) -> None:
        """Release the connection; closes it when the body was not read to its end. Idempotent."""
        ...


class TokenQuestion(Struct, frozen=True, kw_only=True):
    """How a server is asked how many tokens a request has.

    Attributes:
        target: path below the server's base.
        body: what is posted there; the answer holds the number as `count` or `input_tokens`.
    """

    target: str
    body: Mapping[str, Any]


class Dialect(Protocol):
    """What one kind of inference server accepts and how it words its refusals."""

    @property
    def name(self) -> str:
        """`vllm`, `llamacpp` or `generic`."""
        ...

    def adapt(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the upstream request body with what this server would reject mended or left out."""
        ...

    def ask_tokens(self, body: dict[str, Any]) -> TokenQuestion | None:
        """Return how to ask for the tokens of an adapted body; None for a server that cannot tell."""
        ...


class UpstreamHealth(Struct, frozen=True, kw_only=True):
    """Last known state of the inference server.

    Attributes:
        healthy: the last probe was answered with 200.
        detail: one line for people, never a secret.
        checked_at: Unix seconds of the last probe, 0 before the first.
        dialect: name of the dialect in use.
    """

    healthy: bool
    detail: str
    checked_at: float
    dialect: str


class Upstream(Protocol):
    """The inference server."""

    @property
    def dialect(self) -> Dialect:
        """The dialect in use; may change when a probe recognises the server."""
        ...

    @property
    def address(self) -> tuple[str, int]:
        """Its host and port."""
        ...

    def serves(self, model: str) -> bool:
        """Tell whether the server's model list has the model, as far as is known without waiting for the server."""
        ...

    def length_of(self, model: str) -> int | None:
        """Return how many tokens the model reads and writes at most, if the server's list tells; as `serves`."""
        ...

    async def open(self, call: UpstreamCall) -> UpstreamExchange:
        """Send the call and return once the upstream accepted it with status 200.

        Cancelling the caller closes the connection, which makes the server abort the inference.

        Raises:
            UpstreamRefused: any other status, with the upstream's message, type, param and a string code.
            UpstreamUnavailable: no connection, or it broke before the status line.
            UpstreamTimeout: connect or first-byte timeout.
            Unavailable: the server failed repeatedly and is left alone for now; nothing was sent.
        """
        ...

    async def relay(self, call: RelayedCall) -> RelayedAnswer:
        """Pass a call on as it is and return its answer, whatever it says about the call.

        Raises:
            UpstreamRefused: the gateway's own key was refused, or the server redirects.
            GatewayError: as `open`, where there is no answer.
        """
        ...

    def redact(self, text: str) -> str:
        """Return a text of the server's without the gateway's own key in it."""
        ...

    async def models(self) -> dict[str, Any]:
        """Return the upstream's model list, `{"object": "list", "data": [...]}`.

        Raises:
            UpstreamError: as `open`.
        """
        ...

    async def probe(self) -> UpstreamHealth:
        """Ask the server for its health now and remember the answer. Never raises."""
        ...

    @property
    def health(self) -> UpstreamHealth:
        """The last known health, without asking."""
        ...

    async def start(self) -> None:
        """Open the connection pool and begin the background probes; returns without waiting for the server."""
        ...

    async def close(self) -> None:
        """Close every connection."""
        ...


# ---------------------------------------------------------------- secrets


class KeyStore(Protocol):
    """Where sealing keys come from, newest first."""

    def keys(self) -> Sequence[bytes]:
        """Return the keys; the first seals, all open."""
        ...


class SealMismatch(Exception):
    """A token was sealed here, but not for the one who brings it, or not as what it is brought as."""


class Sealer(Protocol):
    """Seals opaque content that a client carries for us."""

    def seal(self, principal: str, kind: str, plaintext: bytes) -> str:
        """Return a token bound to the principal and the kind."""
        ...

    def unseal(self, principal: str, kind: str, token: str) -> bytes | None:
        """Return the plaintext; None for what none of the keys opens, which somebody else may have sealed.

        Raises:
            SealMismatch: it was sealed here for another principal, or as another kind.
        """
        ...
