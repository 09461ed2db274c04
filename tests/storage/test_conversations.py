"""Conversations in each kind of store."""

import asyncio

import pytest
from msgspec import structs
from sqlalchemy import event

from gateway.ports import (
    ConversationAddition,
    ConversationBounds,
    ConversationClaim,
    ConversationDeletion,
    ConversationTurn,
    ConversationUpdate,
    Deletion,
    ItemRemoval,
    NewConversation,
    StoredConversation,
    conversation_lease,
)
from gateway.protocol.errors import ConversationLocked, ConversationNotFound, InvalidRequest, ItemNotFound
from gateway.storage.memory import MemoryStore
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.store import SqlStore
from tests.storage.conftest import DATABASES
from tests.storage.samples import make_item, make_response

TABLES = ("conversation_items", "items", "responses", "conversations", "leases")
BOUNDS = ConversationBounds(max_items=100, max_bytes=100_000)
ID = "conv_1"


@pytest.fixture(scope="module", params=["memory", *DATABASES])
def kept(request, tmp_path_factory):
    """The URL of a database for all tests here, None where there is none."""
    if request.param == "memory":
        return None
    if request.param == "sqlite":
        return database_url(f"sqlite:///{tmp_path_factory.mktemp('conversations')}/responses.db")
    return database_url(request.getfixturevalue("postgres_server").create_database())


@pytest.fixture
async def store(kept):
    store = MemoryStore() if kept is None else SqlStore(StoreSettings(url=kept, auto_migrate="always"))
    await store.start()
    yield store
    if kept is not None:
        with store._engine.begin() as connection:
            for table in TABLES:
                connection.exec_driver_sql(f"DELETE FROM {table}")
    await store.close()


def named(*ids, **fields):
    return [make_item(item_id, id=item_id, **fields) for item_id in ids]


def begin(*items, conversation_id=ID, principal="local"):
    one = StoredConversation(id=conversation_id, principal=principal, created_at=1_700_000_000, metadata=b"{}")
    return NewConversation(conversation=one, items=items)


def claim(holder="run", principal="local", conversation_id=ID, seconds=60):
    lease = conversation_lease(conversation_id, holder)
    return ConversationClaim(id=conversation_id, principal=principal, lease=lease, seconds=seconds)


def addition(*ids, bounds=BOUNDS, principal="local", holder="hand"):
    lease = conversation_lease(ID, holder)
    return ConversationAddition(id=ID, principal=principal, lease=lease, items=named(*ids), at=5, bounds=bounds)


def removal(item_id, principal="local"):
    return ItemRemoval(id=ID, principal=principal, lease=conversation_lease(ID, "hand"), item_id=item_id)


def turn(*ids, holder="run", stored=True, **fields):
    response = make_response(*named(*ids), conversation_id=ID, **fields)
    return ConversationTurn(
        id=ID, lease=conversation_lease(ID, holder), response=response, stored=stored, at=1_700_000_009
    )


async def ids_of(store, principal="local"):
    return [item.id for item in await store.conversations.history(principal, ID, BOUNDS)]


async def take(store, *ids, **fields):
    """Have one turn."""
    await store.conversations.claim(claim())
    taken = turn(*ids, **fields)
    await store.conversations.append(taken)
    return taken.response


async def test_a_conversation_is_read_changed_and_deleted(store):
    await store.conversations.create(begin(*named("a", "b")))
    found = await store.conversations.find("local", ID)
    assert found == begin().conversation
    assert await ids_of(store) == ["a", "b"]
    changed = await store.conversations.update(ConversationUpdate(id=ID, principal="local", metadata=b'{"k":"v"}'))
    assert changed == structs.replace(found, metadata=b'{"k":"v"}') == await store.conversations.find("local", ID)
    await store.conversations.delete(ConversationDeletion(id=ID, principal="local", at=9))
    for act in (
        store.conversations.find("local", ID),
        store.conversations.history("local", ID, BOUNDS),
        store.conversations.update(ConversationUpdate(id=ID, principal="local", metadata=b"{}")),
        store.conversations.delete(ConversationDeletion(id=ID, principal="local", at=9)),
        store.conversations.claim(claim()),
        store.conversations.add(addition("c")),
        store.conversations.remove(removal("a")),
        store.conversations.item("local", ID, "a"),
        store.conversations.page("local", ID, after=None, limit=1, descending=False),
    ):
        with pytest.raises(ConversationNotFound):
            await act


async def test_anothers_conversation_is_not_there(store):
    await store.conversations.create(begin(*named("a")))
    for act in (
        store.conversations.find("eve", ID),
        store.conversations.history("eve", ID, BOUNDS),
        store.conversations.update(ConversationUpdate(id=ID, principal="eve", metadata=b'{"k":"v"}')),
        store.conversations.delete(ConversationDeletion(id=ID, principal="eve", at=9)),
        store.conversations.claim(claim(principal="eve")),
        store.conversations.add(addition("c", principal="eve")),
        store.conversations.remove(removal("a", principal="eve")),
        store.conversations.item("eve", ID, "a"),
        store.conversations.page("eve", ID, after=None, limit=1, descending=False),
    ):
        with pytest.raises(ConversationNotFound):
            await act
    assert await ids_of(store) == ["a"]
    assert (await store.conversations.find("local", ID)).metadata == b"{}"
    await store.conversations.claim(claim())


@pytest.mark.parametrize("stored", [True, False])
async def test_a_turn_adds_its_items_once_and_ends_the_claim(store, stored):
    await store.conversations.create(begin(*named("a")))
    response = await take(store, "in", "out", stored=stored)
    assert await ids_of(store) == ["a", "in", "out"]
    assert await store.response("local", response.id) == (response if stored else None)
    await take(store, "more", stored=stored)
    assert await ids_of(store) == ["a", "in", "out", "more"]
    assert set(await store.items("local", ["a", "in", "none"])) == {"a", "in"}


async def test_one_writes_at_a_time(store):
    await store.conversations.create(begin(*named("a")))
    await store.conversations.claim(claim())
    for act in (
        store.conversations.claim(claim("other")),
        store.conversations.add(addition("c")),
        store.conversations.remove(removal("a")),
    ):
        with pytest.raises(ConversationLocked):
            await act
    assert await ids_of(store) == ["a"]
    await store.leases.release(conversation_lease(ID, "run"))
    await store.conversations.add(addition("b"))
    await store.conversations.claim(claim("other"))


async def test_who_was_too_late_adds_nothing(store):
    await store.conversations.create(begin())
    await store.conversations.claim(claim(seconds=0))
    await store.conversations.claim(claim("other"))
    late = turn("late")
    with pytest.raises(ConversationLocked):
        await store.conversations.append(late)
    assert await ids_of(store) == []
    assert await store.response("local", late.response.id) is None
    await store.conversations.append(turn("in time", holder="other"))
    assert await ids_of(store) == ["in time"]


async def test_a_turn_of_a_deleted_conversation_is_not_stored(store):
    await store.conversations.create(begin())
    await store.conversations.claim(claim())
    await store.conversations.delete(ConversationDeletion(id=ID, principal="local", at=9))
    late = turn("late")
    with pytest.raises(ConversationNotFound):
        await store.conversations.append(late)
    assert await store.response("local", late.response.id) is None


async def test_items_come_and_go_by_hand(store):
    await store.conversations.create(begin(*named("a", "b")))
    response = await take(store, "in")
    await store.conversations.add(addition("c"))
    assert (await store.conversations.remove(removal("b"))).id == ID
    await store.conversations.remove(removal("in"))
    assert await ids_of(store) == ["a", "c"]
    for item_id in ("b", "in", "none"):
        with pytest.raises(ItemNotFound):
            await store.conversations.item("local", ID, item_id)
        with pytest.raises(ItemNotFound):
            await store.conversations.remove(removal(item_id))
    assert (await store.conversations.item("local", ID, "c")).data == b'{"text":"c"}'
    assert await store.response("local", response.id) == response
    with pytest.raises(InvalidRequest, match="'a' already") as refused:
        await store.conversations.add(addition("d", "a"))
    assert (refused.value.code, refused.value.param) == ("duplicate_item", "items[1].id")
    assert await ids_of(store) == ["a", "c"]
    await store.conversations.claim(claim())


@pytest.mark.checklist(407)
@pytest.mark.parametrize("descending", [False, True])
async def test_items_are_read_page_by_page(store, descending):
    ids = list("abcde")
    await store.conversations.create(begin(*named(*ids)))

    async def read(after, limit):
        page = await store.conversations.page("local", ID, after=after, limit=limit, descending=descending)
        return [item.id for item in page.items], page.has_more

    wanted = ids[::-1] if descending else ids
    assert await read(None, 2) == (wanted[:2], True)
    assert await read(wanted[1], 2) == (wanted[2:4], True)
    assert await read(wanted[3], 2) == (wanted[4:], False)
    assert await read(wanted[4], 2) == ([], False)
    assert await read(None, 5) == (wanted, False)
    with pytest.raises(InvalidRequest) as refused:
        await read("none", 2)
    assert (refused.value.code, refused.value.param) == ("item_not_found", "after")


async def test_an_empty_conversation_has_an_empty_page(store):
    await store.conversations.create(begin())
    page = await store.conversations.page("local", ID, after=None, limit=1, descending=False)
    assert (list(page.items), page.has_more) == ([], False)


@pytest.mark.parametrize(
    ("bounds", "key"),
    [
        (ConversationBounds(max_items=2, max_bytes=1000), "max_items"),
        (ConversationBounds(max_items=3, max_bytes=25), "max_bytes"),
    ],
)
async def test_a_conversation_holds_only_so_much(store, bounds, key):
    await store.conversations.create(begin(*named("a", "b")))
    with pytest.raises(InvalidRequest) as refused:
        await store.conversations.add(addition("c", bounds=bounds))
    assert (refused.value.code, refused.value.bound) == ("conversation_too_large", f"conversations.{key}")
    assert len(await store.conversations.history("local", ID, bounds)) == 2
    await store.conversations.add(addition("c"))
    with pytest.raises(InvalidRequest) as refused:
        await store.conversations.history("local", ID, bounds)
    assert refused.value.bound == f"conversations.{key}"


async def test_a_response_of_a_conversation_continues_with_what_came_before_it(store):
    await store.conversations.create(begin(*named("a", "b")))
    first = await take(store, "in", "out")
    await take(store, "later")
    child = make_response(*named("child"), parent_id=first.id)
    await store.append(child)
    history = await store.history("local", child.id)
    assert [item.id for item in history.items] == ["a", "b", "in", "out", "child"]
    assert not history.settled
    await store.conversations.remove(removal("a"))
    assert [item.id for item in (await store.history("local", first.id)).items] == ["b", "in", "out"]
    await store.conversations.delete(ConversationDeletion(id=ID, principal="local", at=9))
    assert [item.id for item in (await store.history("local", first.id)).items] == ["in", "out"]


async def test_a_deleted_response_leaves_its_items_in_the_conversation(store):
    await store.conversations.create(begin())
    response = await take(store, "in", "out")
    await store.delete(Deletion(id=response.id, principal="local", at=9))
    assert await ids_of(store) == ["in", "out"]
    assert set(await store.items("local", ["in"])) == {"in"}


async def test_what_conversations_hold_counts_once(store):
    await store.conversations.create(begin(*named("a")))
    before = await store.stored_bytes("local")
    assert before == len(b'{"text":"a"}') + len(b"{}")
    response = await take(store, "in")
    assert await store.stored_bytes("local") == before + response.size
    await take(store, "on", stored=False)
    assert await store.stored_bytes("local") == before + response.size + len(b'{"text":"on"}')
    assert await store.stored_bytes("eve") == 0


async def test_many_turns_of_many_conversations_at_once(open_sql_store):
    stores = [await open_sql_store() for _ in range(2)]
    names = [f"conv_{number}" for number in range(8)]
    for name in names:
        await stores[0].conversations.create(begin(conversation_id=name))

    async def write(number, name):
        conversations = stores[number % 2].conversations
        lease = conversation_lease(name, f"{number}")
        try:
            await conversations.claim(ConversationClaim(id=name, principal="local", lease=lease, seconds=60))
        except ConversationLocked:
            return 0
        response = make_response(*named(f"{name} {number}"), conversation_id=name)
        await conversations.append(ConversationTurn(id=name, lease=lease, response=response, stored=True, at=1))
        return 1

    written = await asyncio.gather(*(write(number, name) for number in range(6) for name in names[:: (-1) ** number]))
    held = [await stores[0].conversations.history("local", name, BOUNDS) for name in names]
    assert sum(map(len, held)) == sum(written) >= len(names)


@pytest.mark.postgres
@pytest.mark.parametrize("reaches", [True, False])
async def test_a_connection_lost_while_committing_changes_nothing_twice(postgres_database, reaches):
    """Whether or not the first commit reaches the database, its answer does not reach us."""
    store = SqlStore(StoreSettings(url=database_url(postgres_database), auto_migrate="always"))
    await store.start()
    await store.conversations.create(begin(*named("a", "b")))
    losing = []

    def lose_answer(connection):
        if losing:
            losing.clear()
            if reaches:
                connection.connection.driver_connection.commit()
            connection.connection.driver_connection.close()
            connection.exec_driver_sql("SELECT 1")

    event.listen(store._engine, "commit", lose_answer)
    for act in (
        lambda: store.conversations.create(begin(*named("x"), conversation_id="conv_2")),
        lambda: store.conversations.claim(claim()),
        lambda: store.conversations.append(turn("in", "out")),
        lambda: store.conversations.claim(claim("two")),
        lambda: store.conversations.append(turn("loose", holder="two", stored=False)),
        lambda: store.conversations.add(addition("c")),
        lambda: store.conversations.remove(removal("a")),
        lambda: store.conversations.update(ConversationUpdate(id=ID, principal="local", metadata=b'{"k":"v"}')),
        lambda: store.conversations.delete(ConversationDeletion(id="conv_2", principal="local", at=9)),
    ):
        losing.append(True)
        await act()
        assert losing == []
    assert await ids_of(store) == ["b", "in", "out", "loose", "c"]
    assert (await store.conversations.find("local", ID)).metadata == b'{"k":"v"}'
    with pytest.raises(ConversationNotFound):
        await store.conversations.find("local", "conv_2")
    await store.conversations.claim(claim())
    await store.close()
