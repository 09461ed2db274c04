"""What each owner had made, and an index that finds all that one owner stored."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None

_COUNTS = ("responses", "input_tokens", "cached_tokens", "output_tokens", "reasoning_tokens")


def upgrade() -> None:
    text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "usage",
        sa.Column("principal", text, nullable=False),
        sa.Column("day", sa.Date(), nullable=False),
        sa.Column("model", text, nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in _COUNTS),
        sa.Column("last_flush", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("principal", "day", "model", name="pk_usage"),
    )
    op.create_index("ix_responses_principal_id", "responses", ["principal", "id"])


def downgrade() -> None:
    op.drop_index("ix_responses_principal_id", "responses")
    op.drop_table("usage")
