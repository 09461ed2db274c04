"""Responses, items, conversations and agents."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

TEXT = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
ROW_ID = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade() -> None:
    op.create_table(
        "conversations",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("principal", TEXT, nullable=False),
        sa.Column("metadata", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("deleted_at", sa.BigInteger),
        sa.PrimaryKeyConstraint("id", name="pk_conversations"),
    )
    op.create_table(
        "responses",
        sa.Column("id", TEXT, nullable=False),
        sa.Column("principal", TEXT, nullable=False),
        sa.Column("parent_id", TEXT),
        sa.Column("root_id", TEXT, nullable=False),
        sa.Column("conversation_id", TEXT),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("model", TEXT, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("completed_at", sa.BigInteger),
        sa.Column("deleted_at", sa.BigInteger),
        sa.Column("item_bytes", sa.BigInteger, nullable=False),
        sa.Column("snapshot", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_responses"),
        sa.ForeignKeyConstraint(["parent_id"], ["responses.id"], name="fk_responses_parent_id"),
        sa.ForeignKeyConstraint(
            ["conversation_id"], ["conversations.id"], name="fk_responses_conversation_id", ondelete="SET NULL"
        ),
    )
    create_partial_index("responses", "parent_id", where="parent_id IS NOT NULL")
    create_partial_index("responses", "conversation_id", where="conversation_id IS NOT NULL")
    create_partial_index("responses", "created_at", where="parent_id IS NULL", name="ix_responses_roots")
    op.create_index("ix_responses_root_id_created_at", "responses", ["root_id", "created_at"])
    op.create_table(
        "items",
        sa.Column("row_id", ROW_ID, nullable=False),
        sa.Column("response_id", TEXT),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("principal", TEXT, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("type", TEXT, nullable=False),
        sa.Column("id", TEXT, nullable=False),
        sa.Column("call_id", TEXT),
        sa.Column("status", TEXT),
        sa.Column("agent", TEXT, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("row_id", name="pk_items"),
        sa.ForeignKeyConstraint(["response_id"], ["responses.id"], name="fk_items_response_id", ondelete="SET NULL"),
    )
    op.create_index("ix_items_response_id_position", "items", ["response_id", "position"], unique=True)
    create_partial_index("items", "principal", "id", where="length(id) <= 64 AND length(principal) <= 255")
    op.create_table(
        "conversation_items",
        sa.Column("conversation_id", TEXT, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("item_row_id", ROW_ID, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("conversation_id", "position", name="pk_conversation_items"),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversations.id"],
            name="fk_conversation_items_conversation_id",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(["item_row_id"], ["items.row_id"], name="fk_conversation_items_item_row_id"),
    )
    op.create_index("ix_conversation_items_item_row_id", "conversation_items", ["item_row_id"])
    op.create_table(
        "agents",
        sa.Column("response_id", TEXT, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("path", TEXT, nullable=False),
        sa.Column("parent_path", TEXT),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
        sa.PrimaryKeyConstraint("response_id", "position", name="pk_agents"),
        sa.ForeignKeyConstraint(["response_id"], ["responses.id"], name="fk_agents_response_id", ondelete="CASCADE"),
    )


def downgrade() -> None:
    for table in ("agents", "conversation_items", "items", "responses", "conversations"):
        op.drop_table(table)


def create_partial_index(table: str, *columns: str, where: str, name: str | None = None) -> None:
    condition = sa.text(where)
    name = name or "_".join(("ix", table, *columns))
    op.create_index(name, table, list(columns), sqlite_where=condition, postgresql_where=condition)
