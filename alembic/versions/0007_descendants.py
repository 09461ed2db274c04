"""An index over the members of chains without their first, which is found by its id."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None


def upgrade() -> None:
    condition = sa.text("parent_id IS NOT NULL")
    op.create_index(
        "ix_responses_descendants",
        "responses",
        ["root_id", "created_at"],
        sqlite_where=condition,
        postgresql_where=condition,
    )
    op.drop_index("ix_responses_root_id_created_at", "responses")


def downgrade() -> None:
    op.create_index("ix_responses_root_id_created_at", "responses", ["root_id", "created_at"])
    op.drop_index("ix_responses_descendants", "responses")
