"""Callers' keys, as hashes."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "api_keys",
        sa.Column("id", text, nullable=False),
        sa.Column("principal", text, nullable=False),
        sa.Column("name", text, nullable=False),
        sa.Column("digest", sa.Text(), nullable=False),
        sa.Column("created_at", sa.BigInteger(), nullable=False),
        sa.Column("expires_at", sa.BigInteger()),
        sa.Column("revoked_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("id", name="pk_api_keys"),
    )


def downgrade() -> None:
    op.drop_table("api_keys")
