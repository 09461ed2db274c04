from pathlib import Path

from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.dialects import sqlite

from gateway.storage.tables import CallerText, metadata

ANY_TEXT = st.text(st.characters() | st.sampled_from("\x00\\u0d8\ud800\udfff"))
DIALECT = sqlite.dialect()


def store(text):
    return CallerText().process_bind_param(text, DIALECT)


def load(stored):
    return CallerText().process_result_value(stored, DIALECT)


@given(ANY_TEXT)
def test_any_text_comes_back(text):
    assert load(store(text)) == text


@given(ANY_TEXT)
def test_what_is_stored_fits_every_database(text):
    stored = store(text)
    assert "\x00" not in stored
    stored.encode()


@given(ANY_TEXT, ANY_TEXT)
def test_different_texts_stay_different(one, other):
    assert (store(one) == store(other)) is (one == other)


def test_ordinary_text_stays_readable_and_none_stays_none():
    assert store("https://issuer.example|käthe") == "https://issuer.example|käthe"
    assert store(None) is None
    assert load(None) is None


async def test_the_migrations_build_these_tables(sql_store):
    with sql_store._engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, metadata) == []


def test_every_table_that_is_addressed_from_outside_has_an_owner():
    assert {table.name for table in metadata.tables.values() if "principal" in table.c} == {
        "responses",
        "items",
        "conversations",
        "api_keys",
        "usage",
    }


def test_the_migrations_folder_never_becomes_a_package():
    """It would hide the library of the same name."""
    assert not (Path(__file__).parents[2] / "alembic" / "__init__.py").exists()
