"""What can be asked about a conversation without a response being made: a shorter one, and how long it is."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gateway.config.schema import GatewayConfig
from gateway.engine.archive import Archive, decode_item
from gateway.engine.compaction import Item, check_summary, nothing_to_compact
from gateway.engine.deadline import Deadline
from gateway.engine.failures import shutting_down
from gateway.engine.routing import RawHeaders, Route
from gateway.engine.service import Engine
from gateway.engine.summary import Task
from gateway.ports import Clock, Ids, RelayedCall, Store, StoredItem
from gateway.protocol import codec
from gateway.protocol.agents.asked import find_agents, refuse_trees
from gateway.protocol.compaction import COMPACTION, Window, build_window, estimate_tokens, refuse_compaction
from gateway.protocol.errors import UpstreamError
from gateway.protocol.history import drop_incomplete_calls, drop_orphaned_outputs, match_outputs
from gateway.protocol.ids import prefix_of
from gateway.protocol.requests import CreateRequest, build_upstream_body, read_object
from gateway.protocol.response import CompactedWindow, InputTokens, Usage
from gateway.telemetry.metrics import Metrics


class Standalone:
    """Answers such questions, under the rules of responses: routing, seats, deadlines, cancellation, accounts.

    Args:
        engine: reads requests, and holds what they share.
        store: what requests continue.
        config: bounds.
        metrics: what is counted.
        clock: time of creation.
        ids: mints ids.
    """

    def __init__(
        self, engine: Engine, store: Store, config: GatewayConfig, metrics: Metrics, clock: Clock, ids: Ids
    ) -> None:
        self._engine = engine
        self._archive = Archive(store)
        self._metrics = metrics
        self._clock = clock
        self._ids = ids
        self._deadlines: set[Deadline] = set()
        self.reconfigure(config)

    def reconfigure(self, config: GatewayConfig) -> None:
        """Use other bounds for every question from now on."""
        self._config = config

    def cut_off(self) -> int:
        """End every question, at once; returns how many there were."""
        for deadline in self._deadlines:
            deadline.cut_off(shutting_down())
        return len(self._deadlines)

    async def compact(self, principal: str, body: bytes, headers: RawHeaders) -> bytes:
        """Return a conversation made shorter, as JSON; nothing is stored.

        Args:
            principal: who asks.
            body: the request: a model, the conversation, and what else a create may hold.
            headers: the request's headers, of which the few that are passed on are picked.

        Raises:
            InvalidRequest: the request is wrong, the conversation is empty, or there is no compaction.
            GatewayError: the inference server wrote no note.
        """
        request, route = self._read(body)
        compaction = self._engine.compaction
        if compaction.threshold is None:
            raise refuse_compaction(None)
        items, window = await self._find_window(principal, request, keep_bytes=None, complete=False)
        if not items:
            raise nothing_to_compact()
        count = self._metrics.compactions_total.labels
        with self._bounded():
            summary = await compaction.summarizer.summarize(
                Task(
                    principal=principal,
                    headers=route.pick_headers(headers),
                    request=request,
                    route=route,
                    max_answer_bytes=self._config.responses.max_upstream_json_bytes,
                ),
                window.carry(request.carry),
            )
        if summary.usage is not None:
            self._engine.usage.count(principal, request.model, summary.usage)
        check_summary(summary, None, count)
        token = compaction.notes.write(principal, summary.text)
        count("compacted").inc()
        shorter = window.compact(summary.text, None)
        note = {"id": self._ids.mint(prefix_of(COMPACTION)), "type": COMPACTION, "encrypted_content": token}
        return codec.encode(
            CompactedWindow(
                id=self._ids.mint(prefix_of("response")),
                created_at=int(self._clock.now()),
                output=[*map(self._show_message, shorter.kept), note, *shorter.tail],
                usage=summary.usage or Usage(),
            )
        )

    async def count_tokens(self, principal: str, body: bytes, headers: RawHeaders) -> bytes:
        """Return how many tokens a create with this body would have for its model, as JSON.

        Args:
            principal: who asks.
            body: the request.
            headers: as for `compact`.

        Raises:
            InvalidRequest: the request is wrong.
            GatewayError: the inference server cannot be asked.
        """
        request, route = self._read(body)
        _, window = await self._find_window(
            principal, request, keep_bytes=self._config.compaction.keep_user_bytes, complete=True
        )
        items = window.carry(request.carry).show()
        asked = build_upstream_body(request, items, request.toolset.offers.first, model=route.model, stream=False)
        with self._bounded():
            counted = await self._ask(route, asked, headers)
        if counted is None:
            counted = estimate_tokens([items, asked.get("instructions"), asked.get("tools")])
        elif not request.toolset.hosted:
            return codec.encode(InputTokens(input_tokens=counted))
        return codec.encode(InputTokens(input_tokens=counted, estimated=True))

    def _read(self, body: bytes) -> tuple[CreateRequest, Route]:
        raw = read_object(body, self._config.responses.max_json_depth)
        if (param := find_agents(raw)) is not None:
            raise refuse_trees(param)
        return self._engine.read_fields(raw)

    async def _ask(self, route: Route, body: dict[str, Any], headers: RawHeaders) -> int | None:
        """Return what the server says; None where it cannot tell."""
        dialect = route.upstream.dialect
        question = dialect.ask_tokens(dialect.adapt(body))
        if question is None:
            return None
        picked = {**route.pick_headers(headers), "content-type": "application/json", "accept": "application/json"}
        call = RelayedCall(target=question.target, body=codec.encode(question.body), headers=picked)
        limit = self._config.responses.max_upstream_json_bytes
        with await route.seats.take():
            answer = await route.upstream.relay(call)
            try:
                told = bytearray()
                while (chunk := await answer.read()) and len(told) <= limit:
                    told += chunk
            finally:
                await answer.close()
        if answer.status >= 500:
            raise UpstreamError(f"The upstream could not count tokens; it answered {answer.status}.")
        return _read_count(bytes(told)) if answer.status == 200 and len(told) <= limit else None

    async def _find_window(
        self, principal: str, request: CreateRequest, *, keep_bytes: int | None, complete: bool
    ) -> tuple[list[Item], Window]:
        """Return what a request refers to, all of it and as the model would be shown it, in the caller's form."""
        stored: Sequence[StoredItem] = ()
        if request.conversation_id is not None:
            stored = await self._engine.conversations.load(principal, request.conversation_id)
        elif (parent_id := request.fields.previous_response_id) is not None:
            found = await self._archive.load_history(principal, parent_id)
            if found.tree is not None:
                raise refuse_trees("previous_response_id")
            stored = found.items
        history = drop_orphaned_outputs(drop_incomplete_calls(decode_item(item) for item in stored))
        new = drop_incomplete_calls(await self._archive.resolve_references(principal, request.items))
        match_outputs(history, new, complete=complete)
        items = [*history, *new]
        notes = self._engine.compaction.notes.read(principal, items, first_new=len(history))
        return items, build_window(items, notes, keep_bytes)

    def _show_message(self, item: Item) -> Item:
        """Return a message as output has it: with an id, and in parts."""
        content = item["content"]
        if isinstance(content, str):
            content = [{"type": "input_text", "text": content}]
        return {"id": self._ids.mint(prefix_of("message")), "status": "completed", **item, "content": content}

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        deadline = Deadline(self._config.engine.run_deadline_seconds)
        self._deadlines.add(deadline)
        try:
            with deadline:
                yield
        finally:
            self._deadlines.discard(deadline)


def _read_count(told: bytes) -> int | None:
    try:
        answer = codec.decode(told)
    except ValueError:
        return None
    found = answer.get("count", answer.get("input_tokens")) if isinstance(answer, dict) else None
    return found if type(found) is int and found >= 0 else None
