"""The first tables: entries, cells, runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the tables."""
    ordered = "C" if op.get_bind().dialect.name == "postgresql" else None
    op.create_table(
        "entry",
        sa.Column("id", sa.String(10, collation=ordered), primary_key=True),
        sa.Column("created_at", sa.String(27, collation=ordered), nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("model_digest", sa.Text, nullable=False),
        sa.Column("inferlab_version", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_index("entry_by_time", "entry", ["created_at", "id"])
    op.create_table(
        "cell",
        sa.Column("row", sa.Integer, primary_key=True),
        sa.Column(
            "entry_id",
            sa.String(10, collation=ordered),
            sa.ForeignKey("entry.id", ondelete="CASCADE"),
            nullable=False,
        ),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("cell_id", sa.Text, nullable=False),
        sa.Column("engine", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("failure", sa.Text),
        sa.Column("cached_items_per_sec", sa.Float(53)),
        sa.Column("cached_items_per_sec_low", sa.Float(53)),
        sa.Column("cached_items_per_sec_high", sa.Float(53)),
        sa.Column("cached_median_ms", sa.Float(53)),
        sa.Column("cached_median_ms_low", sa.Float(53)),
        sa.Column("cached_median_ms_high", sa.Float(53)),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_index("cell_by_entry", "cell", ["entry_id", "position"], unique=True)
    op.create_table(
        "run",
        sa.Column("row", sa.Integer, primary_key=True),
        sa.Column("cell_row", sa.Integer, sa.ForeignKey("cell.row", ondelete="CASCADE"), nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("started_at", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("samples", sa.LargeBinary, nullable=False),
    )
    op.create_index("run_by_cell", "run", ["cell_row", "position"], unique=True)
