"""Runs the migrations on the connection the gateway hands over, or, for developers, on `alembic -x url=URL`."""

from alembic import context
from sqlalchemy import Connection

from gateway.storage.engine import create_file, open_engine
from gateway.storage.settings import StoreSettings, database_url
from gateway.storage.tables import metadata


def migrate(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, render_as_batch=True, compare_type=True)
    with context.begin_transaction():
        context.run_migrations()


connection = context.config.attributes.get("connection")
if connection is not None:
    migrate(connection)
else:
    url = context.get_x_argument(as_dictionary=True).get("url")
    if url is None or context.is_offline_mode():
        raise SystemExit("Name a running database: alembic -x url=sqlite:///responses.db upgrade head")
    settings = StoreSettings(url=database_url(url))
    create_file(settings.url)
    engine = open_engine(settings)
    with engine.begin() as own_connection:
        migrate(own_connection)
    engine.dispose()
