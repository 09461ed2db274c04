"""Both places where keys may be kept: the same promises."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import delete

from gateway.ports import ApiKey, KeysUnreadable
from gateway.storage.engine import open_engine
from gateway.storage.key_file import KeyFile
from gateway.storage.key_table import KeyTable
from gateway.storage.migrations import upgrade
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.tables import api_keys
from tests.storage.conftest import DATABASES, make_url

NOW = 1_900_000_000
LONG_AGO = 1_000_000_000


def make_key(number=1, **changes):
    key_id = f"key{number:09d}"
    return ApiKey(**{"id": key_id, "principal": "a", "digest": f"{number:064x}", "created_at": NOW + number, **changes})


@pytest.fixture(scope="module")
def postgres_database(postgres_server):
    """One for all: making it takes longer than most of what happens in it."""
    return postgres_server.create_database()


@pytest.fixture(params=["file", *DATABASES])
def open_book(request, tmp_path):
    """Opens books on one and the same place, as processes would."""
    books = []
    url = make_url("sqlite", request, tmp_path) if request.param == "sqlite" else None
    if request.param == "postgres":
        url = database_url(request.getfixturevalue("postgres_database"))
        engine = open_engine(StoreSettings(url=url))
        upgrade(engine)
        with engine.begin() as connection:
            connection.execute(delete(api_keys))
        engine.dispose()

    def open_one(max_keys=3):
        if url is None:
            book = KeyFile(tmp_path / "keys.toml", max_keys=max_keys)
        else:
            book = KeyTable(StoreSettings(url=url, auto_migrate="always"), max_keys=max_keys)
        books.append(book)
        return book

    yield open_one
    for book in books:
        book.close()


@pytest.fixture
def book(open_book):
    return open_book()


def test_a_key_is_kept_with_all_that_is_known_of_it(book, open_book):
    keys = [make_key(1), make_key(2, name='Ada\'s "own" \\ ключ', expires_at=NOW + 99), make_key(3, principal="b|c")]
    for key in keys:
        book.add(key)
    assert book.list_all() == open_book().list_all() == keys
    assert book.read() == open_book().read() == {key.id: key for key in keys}


def test_nothing_is_there_at_first(book):
    assert book.list_all() == []
    assert book.revoke("key000000001", NOW) is None


def test_a_revoked_key_counts_no_more_and_is_still_listed(book, open_book):
    other = open_book()
    book.add(make_key(1))
    book.add(make_key(2))
    assert set(other.read()) == {"key000000001", "key000000002"}
    assert other.read() is other.read()
    revoked = make_key(1, revoked_at=NOW + 5)
    assert book.revoke("key000000001", NOW + 5) == revoked
    assert book.revoke("key000000001", NOW + 9) == revoked
    assert other.read() == {"key000000002": make_key(2)}
    assert other.list_all() == [revoked, make_key(2)]


def test_an_expired_key_is_not_read(book):
    book.add(make_key(1, expires_at=LONG_AGO))
    book.add(make_key(2))
    assert list(book.read()) == ["key000000002"]
    assert len(book.list_all()) == 2


def test_there_are_only_so_many(book, open_book):
    for number in (1, 2, 3):
        book.add(make_key(number))
    with pytest.raises(KeysUnreadable, match="keys_max"):
        book.add(make_key(4))
    book.revoke("key000000002", NOW)
    book.add(make_key(4))
    with pytest.raises(KeysUnreadable, match=r"more keys than \[auth\] keys_max \(2\)"):
        open_book(max_keys=2).read()


def test_makers_do_not_lose_each_others_keys(open_book):
    books = [open_book(max_keys=100) for _ in range(4)]
    books[0].add(make_key(0))
    begun = threading.Barrier(len(books))

    def make(place, book):
        begun.wait()
        for number in range(5):
            book.add(make_key(100 * (place + 1) + number))

    with ThreadPoolExecutor(len(books)) as pool:
        list(pool.map(make, range(len(books)), books))
    assert len(books[0].read()) == len(open_book(max_keys=100).read()) == 21
