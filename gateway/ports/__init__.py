"""What the engine needs from the outside world, as Protocols.

The rooms of floor 5 implement these and never import each other; `app` joins them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from msgspec import Struct

from gateway.ports.callers import ApiKey, Authenticator, Identity, KeyBook, KeysUnreadable
from gateway.ports.relays import RelayedAnswer, RelayedCall

__all__ = [
    "ApiKey",
    "Authenticator",
    "Clock",
    "Deletion",
    "Dialect",
    "History",
    "Identity",
    "Ids",
    "KeyBook",
    "KeyStore",
    "KeysUnreadable",
    "RelayedAnswer",
    "RelayedCall",
    "Sealer",
    "Store",
    "StoreHealth",
    "StoredItem",
    "StoredResponse",
    "Upstream",
    "UpstreamCall",
    "UpstreamExchange",
    "UpstreamHealth",
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

    async def read(self) -> bytes:
        """Return whatever has arrived, at least one byte, or `b""` at the clean end of the body.

        Raises:
            UpstreamError: the body broke off.
            UpstreamTimeout: nothing arrived within the idle timeout, or the total timeout passed.
        """
        ...

    def retire(self) -> None:
        """Say that the answer is complete: the connection is reused if the body ends at once, else closed."""
        ...

    async def close(self) -> None:
        """Release the connection; closes it when the body was not read to its end. Idempotent."""
        ...


class Dialect(Protocol):
    """What one kind of inference server accepts and how it words its refusals."""

    @property
    def name(self) -> str:
        """`vllm`, `llamacpp` or `generic`."""
        ...

    def adapt(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the upstream request body with what this server would reject mended or left out."""
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


# ---------------------------------------------------------------- storage


class StoredItem(Struct, frozen=True, kw_only=True):
    """One item of a response, stored once.

    Attributes:
        role: `context` (effective history of an unstored parent), `input` or `output`.
        type: item type, for example `message` or `function_call`.
        id: the item's id as callers see it; not unique, never a key. The id minted for an input item that came without
            one stands here alone, not in `data`.
        call_id: call id of calls and their outputs, else None.
        status: item status, or None where the item has none.
        data: the item as one JSON object, encoded.
        agent: path of the owning agent.
    """

    role: str
    type: str
    id: str
    data: bytes
    call_id: str | None = None
    status: str | None = None
    agent: str = "/root"


class StoredResponse(Struct, frozen=True, kw_only=True):
    """A finished response as it is persisted.

    Attributes:
        id: the response id.
        principal: owner; every read names it.
        parent_id: `previous_response_id`, only when the parent is stored as well.
        conversation_id: the conversation it belongs to, or None.
        status: `completed` or `incomplete` (or `queued`, `in_progress`, `failed`, `cancelled` of background runs).
        model: the model asked for.
        created_at: Unix seconds.
        completed_at: Unix seconds or None.
        snapshot: the response object as JSON **without** its `output` member's items (`"output":[]`), encoded.
        items: context, input and output items in order.
    """

    id: str
    principal: str
    status: str
    model: str
    created_at: int
    snapshot: bytes
    items: Sequence[StoredItem]
    parent_id: str | None = None
    conversation_id: str | None = None
    completed_at: int | None = None


class Deletion(Struct, frozen=True, kw_only=True):
    """That an owner no longer wants a response.

    Attributes:
        id: the response id.
        principal: owner.
        at: Unix seconds.
    """

    id: str
    principal: str
    at: int


class History(Struct, frozen=True, kw_only=True):
    """The effective history behind one response: every item a continuation must replay, oldest first.

    Attributes:
        response_id: the newest response of the chain.
        items: context, input and output items of the whole chain, in order.
        responses: how many responses the chain has.
    """

    response_id: str
    items: Sequence[StoredItem]
    responses: int


class StoreHealth(Struct, frozen=True, kw_only=True):
    """Whether the database can be used, and why not."""

    healthy: bool
    detail: str


class Store(Protocol):
    """Durable responses. Every method is scoped to a principal: another's id is simply not there."""

    async def start(self) -> None:
        """Open the pools and the writer; check or run migrations as configured."""
        ...

    async def append(self, response: StoredResponse) -> None:
        """Persist one response with its items; returns only after COMMIT.

        Cancelling the caller does not undo the write: the response may be stored all the same.

        Raises:
            StorageUnavailable: the database refused or the writer's bounded queue is full; nothing was stored.
        """
        ...

    async def history(self, principal: str, response_id: str) -> History | None:
        """Return the effective history with one bounded query, or None when there is no such response.

        Raises:
            InvalidRequest: the chain is longer or larger than the store's bounds.
            StorageUnavailable: the database does not answer.
        """
        ...

    async def holds(self, principal: str, response_id: str) -> bool:
        """Tell whether the principal has such a live response, with one query that loads nothing.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        ...

    async def response(self, principal: str, response_id: str) -> StoredResponse | None:
        """Return one response with its own items, or None.

        Raises:
            StorageUnavailable: the database does not answer.
        """
        ...

    async def delete(self, deletion: Deletion) -> None:
        """Hide a response from every process; returns only after COMMIT.

        Live responses that continue from it still replay its items. A process that keeps histories in memory may let
        it be continued for a bounded time more.

        Raises:
            ResponseNotFound: the principal has no such live response.
            StorageUnavailable: the database does not answer, or the writer's queue is full.
        """
        ...

    async def items(self, principal: str, item_ids: Sequence[str]) -> dict[str, StoredItem]:
        """Return the newest visible item for each id that has one, of responses that are not deleted.

        Raises:
            InvalidRequest: the items together are larger than the store's bound.
            StorageUnavailable: the database does not answer.
        """
        ...

    async def verify(self) -> None:
        """Make sure that responses can be stored now: the database has just taken a write, or takes one when asked.

        Raises:
            StorageUnavailable: it does not answer, is full or read-only, or its schema does not fit.
        """
        ...

    async def probe(self) -> StoreHealth:
        """Check that the database answers, is migrated and stores what it is given. Never raises."""
        ...

    async def close(self) -> None:
        """Write what is queued, then close."""
        ...


# ---------------------------------------------------------------- secrets


class KeyStore(Protocol):
    """Where sealing keys come from, newest first."""

    def keys(self) -> Sequence[bytes]:
        """Return the keys; the first seals, all open."""
        ...


class Sealer(Protocol):
    """Seals opaque content that a client carries for us."""

    def seal(self, principal: str, kind: str, plaintext: bytes) -> str:
        """Return a token bound to the principal and the kind."""
        ...

    def unseal(self, principal: str, kind: str, token: str) -> bytes | None:
        """Return the plaintext, or None when the token is not ours, another's, or of another kind."""
        ...
