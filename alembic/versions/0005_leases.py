"""Leases, and indexes by which conversations and what they hold are found."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "leases",
        sa.Column("name", text, nullable=False),
        sa.Column("holder", text, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("name", name="pk_leases"),
    )
    op.create_index("ix_conversations_principal_id", "conversations", ["principal", "id"])
    _create_partial_index("conversations", "deleted_at", where="deleted_at IS NOT NULL")
    _create_partial_index("items", "principal", where="response_id IS NULL", name="ix_items_loose")


def downgrade() -> None:
    op.drop_index("ix_items_loose", "items")
    op.drop_index("ix_conversations_deleted_at", "conversations")
    op.drop_index("ix_conversations_principal_id", "conversations")
    op.drop_table("leases")


def _create_partial_index(table: str, column: str, *, where: str, name: str | None = None) -> None:
    condition = sa.text(where)
    name = name or f"ix_{table}_{column}"
    op.create_index(name, table, [column], sqlite_where=condition, postgresql_where=condition)
