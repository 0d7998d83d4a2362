"""Projects and the queue of jobs; entries can belong to a project and have a brief that lists show."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from alembic import op

from inferlab.store.briefs import brief_of, digest_of

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the tables, and fill in what documents did not have beside them."""
    ordered = "C" if op.get_bind().dialect.name == "postgresql" else None

    def name(column: str, **more: Any) -> sa.Column[str]:
        return sa.Column(column, sa.String(10, collation=ordered), **more)

    def time(column: str, nullable: bool = False) -> sa.Column[str]:
        return sa.Column(column, sa.String(27, collation=ordered), nullable=nullable)

    op.create_table(
        "project",
        name("id", primary_key=True),
        time("created_at"),
        time("changed_at"),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("model_digest", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_table(
        "job",
        name("id", primary_key=True),
        time("created_at"),
        time("queued_at"),
        time("started_at", nullable=True),
        time("ended_at", nullable=True),
        name("project_id", nullable=True),
        name("entry_id", nullable=True),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("cancel", sa.Boolean, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("fraction", sa.Float(53)),
        sa.Column("left_s", sa.Float(53)),
        sa.Column("failure", sa.Text, nullable=False),
        sa.Column("log", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_index("job_by_status", "job", ["status", "queued_at"])
    op.create_index("job_by_entry", "job", ["entry_id"])
    op.add_column("entry", name("project_id", nullable=True))
    op.add_column("entry", sa.Column("brief", sa.Text, nullable=False, server_default=""))
    op.create_index("entry_by_project", "entry", ["project_id", "created_at", "id"])
    op.create_index("entry_by_model", "entry", ["model_digest", "created_at", "id"])
    _fill()


def _fill() -> None:
    connection = op.get_bind()
    documents = sa.text("SELECT id, kind, content FROM entry WHERE kind <> 'benchmark'")
    update = sa.text("UPDATE entry SET brief = :brief, model_digest = :digest WHERE id = :id")
    for row in connection.execute(documents).mappings().all():
        content = json.loads(row["content"])
        values = {"id": row["id"], "brief": brief_of(row["kind"], content), "digest": digest_of(content)}
        connection.execute(update, values)
