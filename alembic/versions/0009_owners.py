"""The index of owners without responses stored while callers are not told apart, which all have the same owner."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"
branch_labels = None
depends_on = None


def upgrade() -> None:
    condition = sa.text("principal != 'local'")
    op.create_index(
        "ix_responses_owners",
        "responses",
        ["principal", "id"],
        sqlite_where=condition,
        postgresql_where=condition,
    )
    op.drop_index("ix_responses_principal_id", "responses")


def downgrade() -> None:
    op.create_index("ix_responses_principal_id", "responses", ["principal", "id"])
    op.drop_index("ix_responses_owners", "responses")
