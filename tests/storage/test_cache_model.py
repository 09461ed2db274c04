"""Whatever is appended, deleted and asked for: the cache answers as the store behind it, but for its period."""

import asyncio
import shutil
import tempfile
from functools import cache
from itertools import count
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.ports import Deletion
from gateway.protocol.errors import InvalidRequest, ResponseNotFound
from gateway.storage.cache import CachedStore
from gateway.storage.memory import MemoryStore
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.store import SqlStore
from gateway.telemetry.metrics import Metrics
from tests.storage.conftest import migrate
from tests.storage.samples import make_agent, make_item, make_response

PERIOD = 5.0
MAX_BYTES = 12_000
BOUNDS = {"history_max_responses": 3, "history_max_bytes": 3000}
OWNERS = ("ann", "bob")
item_lists = st.lists(st.sampled_from([0, 10, 700, 1500]).map(bytes), max_size=3)


def tell(items, agents):
    return [item.data for item in items], agents and [agent.state for agent in agents]


class CacheMachine(RuleBasedStateMachine):
    """Two processes on one store: this one keeps histories in memory, the other only deletes and appends."""

    def __init__(self):
        super().__init__()
        self.runner = asyncio.Runner()
        self.inner = self.open_inner()
        self.seconds = 1000.0
        self.metrics = Metrics()
        self.cached = CachedStore(
            self.inner,
            max_bytes=MAX_BYTES,
            revalidate_seconds=PERIOD,
            metrics=self.metrics,
            monotonic=lambda: self.seconds,
            **BOUNDS,
        )
        self.runner.run(self.cached.start())
        self.numbers = count()
        self.known = []
        self.gone_elsewhere = {}

    def open_inner(self):
        return MemoryStore(**BOUNDS)

    def teardown(self):
        self.runner.run(self.cached.close())
        self.runner.close()

    def make(self, owner, parent, texts, *, is_tree=False):
        items = [make_item(data=text) for text in texts]
        agents = [make_agent(state=text) for text in texts] if is_tree else None
        return make_response(*items, id=f"resp_{next(self.numbers)}", principal=owner, parent_id=parent, agents=agents)

    def choose(self, data):
        # Often one of the newest, so that chains grow.
        chosen = st.sampled_from(self.known[-2:]) | st.sampled_from(self.known)
        return data.draw(chosen, label="response")

    @rule(owner=st.sampled_from(OWNERS), turns=st.lists(item_lists, min_size=1, max_size=4), here=st.booleans())
    def begin(self, owner, turns, here):
        parent = None
        for texts in turns:
            response = self.make(owner, parent, texts)
            self.store(response, here=here)
            parent = response.id

    @precondition(lambda self: self.known)
    @rule(data=st.data(), texts=item_lists, here=st.booleans(), is_tree=st.booleans())
    def go_on(self, data, texts, here, is_tree):
        parent = self.choose(data)
        # What continues a tree is one, and none begins without anything.
        is_tree = parent.agents is not None or (is_tree and bool(texts))
        self.store(self.make(parent.principal, parent.id, texts, is_tree=is_tree), here=here)

    def store(self, response, *, here):
        self.runner.run((self.cached if here else self.inner).append(response))
        self.known.append(response)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), here=st.booleans())
    def delete(self, data, here):
        response = self.choose(data)
        store = self.cached if here else self.inner
        try:
            self.runner.run(store.delete(Deletion(id=response.id, principal=response.principal, at=1)))
        except ResponseNotFound:
            return
        finally:
            if here:
                self.gone_elsewhere.pop(response.id, None)
        if not here:
            self.gone_elsewhere[response.id] = self.seconds

    @rule(seconds=st.sampled_from([0.5, 2.0, PERIOD - 0.5, PERIOD, 100.0]))
    def wait(self, seconds):
        self.seconds += seconds

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def ask(self, data):
        response = self.choose(data)
        cached = self.answer(self.cached, response.principal, response.id)
        if cached == self.answer(self.inner, response.principal, response.id):
            return
        # The other process deleted it a moment ago, and this one still has all of it.
        assert self.seconds - self.gone_elsewhere[response.id] < PERIOD
        assert cached == self.tell_chain(response)

    @precondition(lambda self: self.known)
    @rule(data=st.data())
    def ask_for_anothers(self, data):
        response = self.choose(data)
        other = next(owner for owner in OWNERS if owner != response.principal)
        assert self.answer(self.cached, other, response.id) is None

    def answer(self, store, owner, response_id):
        try:
            history = self.runner.run(store.history(owner, response_id))
        except InvalidRequest as error:
            return error.message
        return history and (history.response_id, history.responses, *tell(history.items, history.tree))

    def tell_chain(self, response):
        by_id = {known.id: known for known in self.known}
        chain = [response]
        while chain[0].parent_id is not None:
            chain.insert(0, by_id[chain[0].parent_id])
        items = [item for member in chain for item in member.items]
        agents = [agent for member in chain for agent in member.agents or ()]
        return response.id, len(chain), *(tell(items, None) if response.agents is None else tell([], agents))

    @invariant()
    def the_bound_holds(self):
        cache = self.cached._cache
        links = {}
        for entry in cache._entries.values():
            link = entry.link
            while link is not None:
                links[id(link)] = link
                link = link.parent
        keys = sum(608 + 4 * sum(map(len, key)) for key in cache._entries)
        assert cache.bytes == keys + sum(link.weight for link in links.values()) <= MAX_BYTES
        assert self.cached._filling == {}


@cache
def migrated_bytes():
    """What a SQLite file with the tables of today consists of."""
    with tempfile.TemporaryDirectory(prefix="gateway-cache-") as folder:
        migrate(database_url(f"sqlite:///{folder}/responses.db"))
        return Path(folder, "responses.db").read_bytes()


class SqlCacheMachine(CacheMachine):
    """The same on SQLite."""

    def open_inner(self):
        self.folder = Path(tempfile.mkdtemp(prefix="gateway-cache-"))
        path = self.folder / "responses.db"
        path.write_bytes(migrated_bytes())
        return SqlStore(StoreSettings(url=database_url(f"sqlite:///{path}"), **BOUNDS))

    def teardown(self):
        super().teardown()
        shutil.rmtree(self.folder)


TestCacheOnMemory = CacheMachine.TestCase
TestCacheOnMemory.settings = settings(stateful_step_count=40)
TestCacheOnSqlite = SqlCacheMachine.TestCase
TestCacheOnSqlite.settings = settings(max_examples=15, stateful_step_count=30)
