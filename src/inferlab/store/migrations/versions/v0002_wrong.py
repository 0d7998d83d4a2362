"""Beside a cell's numbers, whether its outputs were wrong: the history had to search the text of all its runs."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"

# As version 1 wrote it, and as it cannot stand within any text: there the quotes would be escaped.
_WRONG = '%"check":{"status":"mismatch"%'


def upgrade() -> None:
    """Add the column, and fill it for cells that are finished."""
    op.add_column("cell", sa.Column("cached_wrong", sa.Boolean))
    found = "SELECT 1 FROM run WHERE run.cell_row = cell.row AND run.content LIKE :wrong"
    query = sa.text(f"UPDATE cell SET cached_wrong = EXISTS ({found}) WHERE status <> 'pending'")  # noqa: S608
    op.get_bind().execute(query, {"wrong": _WRONG})
