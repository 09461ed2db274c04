"""A mark of responses that trees of agents made, which tells the size of what is kept of the agents."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("responses", sa.Column("agent_bytes", sa.BigInteger))


def downgrade() -> None:
    op.drop_column("responses", "agent_bytes")
