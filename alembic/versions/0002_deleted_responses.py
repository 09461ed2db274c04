"""An index over deleted responses, by which they are found when they can go."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    condition = sa.text("deleted_at IS NOT NULL")
    op.create_index(
        "ix_responses_deleted_at", "responses", ["deleted_at"], sqlite_where=condition, postgresql_where=condition
    )


def downgrade() -> None:
    op.drop_index("ix_responses_deleted_at", "responses")
