"""What is peculiar to keys in the database."""

import pytest

from gateway.ports import KeysUnreadable
from gateway.storage.key_table import KeyTable
from gateway.storage.settings import StoreSettings, database_url
from tests.storage.test_key_books import make_key


def test_a_database_that_may_not_be_migrated(bare_database):
    book = KeyTable(StoreSettings(url=bare_database, auto_migrate="never"), max_keys=3)
    with pytest.raises(KeysUnreadable, match=r"does not exist|gateway db upgrade"):
        book.read()
    book.close()


def test_a_database_that_does_not_answer():
    url = database_url("postgresql://gateway:s3cret@127.0.0.1:1/gateway")
    book = KeyTable(StoreSettings(url=url, busy_timeout_seconds=1), max_keys=3)
    with pytest.raises(KeysUnreadable, match="cannot be reached") as caught:
        book.add(make_key())
    assert "s3cret" not in str(caught.value)
    book.close()


def test_an_id_that_is_taken(database):
    book = KeyTable(StoreSettings(url=database, auto_migrate="always"), max_keys=3)
    book.add(make_key())
    with pytest.raises(KeysUnreadable):
        book.add(make_key(principal="b"))
    assert book.list_all() == [make_key()]
    book.close()
