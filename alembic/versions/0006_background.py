"""Background responses while they are made, and their events."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    text = sa.Text().with_variant(sa.Text(collation="C"), "postgresql")
    op.create_table(
        "background_runs",
        sa.Column("response_id", text, nullable=False),
        sa.Column("holder", text, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.Column("starts", sa.Integer(), nullable=False),
        sa.Column("streams", sa.Boolean(), nullable=False),
        sa.Column("next_number", sa.BigInteger(), nullable=False),
        sa.Column("told", sa.Boolean(), nullable=False),
        sa.Column("swept", sa.Boolean(), nullable=False),
        sa.Column("request", sa.LargeBinary(), nullable=False),
        sa.Column("trace", sa.Text()),
        sa.Column("cancel_requested_at", sa.BigInteger()),
        sa.Column("ended_at", sa.BigInteger()),
        sa.PrimaryKeyConstraint("response_id", name="pk_background_runs"),
        sa.ForeignKeyConstraint(
            ["response_id"], ["responses.id"], name="fk_background_runs_response_id", ondelete="CASCADE"
        ),
    )
    unfinished, kept = sa.text("ended_at IS NULL"), sa.text("NOT swept")
    op.create_index(
        "ix_background_runs_unfinished", "background_runs", ["holder"],
        sqlite_where=unfinished, postgresql_where=unfinished,
    )  # fmt: skip
    op.create_index(
        "ix_background_runs_kept", "background_runs", ["ended_at"], sqlite_where=kept, postgresql_where=kept
    )
    op.create_table(
        "background_events",
        sa.Column("response_id", text, nullable=False),
        sa.Column("first", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("count", sa.Integer(), nullable=False),
        sa.Column("data", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("response_id", "first", name="pk_background_events"),
        sa.ForeignKeyConstraint(
            ["response_id"],
            ["background_runs.response_id"],
            name="fk_background_events_response_id",
            ondelete="CASCADE",
        ),
    )


def downgrade() -> None:
    op.drop_table("background_events")
    op.drop_index("ix_background_runs_kept", "background_runs")
    op.drop_index("ix_background_runs_unfinished", "background_runs")
    op.drop_table("background_runs")
