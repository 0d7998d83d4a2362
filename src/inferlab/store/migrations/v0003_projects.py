"""Projects and the queue of jobs; entries can belong to a project and have a brief that lists show."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def upgrade(execute: Callable[..., list[dict[str, Any]]], dialect: str) -> None:
    """Make the tables and columns."""
    ordered = ' COLLATE "C"' if dialect == "postgresql" else ""
    name, time = f"VARCHAR(10){ordered}", f"VARCHAR(27){ordered}"
    execute(f"""
        CREATE TABLE project (
            id {name} NOT NULL PRIMARY KEY,
            created_at {time} NOT NULL,
            changed_at {time} NOT NULL,
            name TEXT NOT NULL,
            description TEXT NOT NULL,
            model_digest TEXT NOT NULL,
            content TEXT NOT NULL
        )
    """)
    execute(f"""
        CREATE TABLE job (
            id {name} NOT NULL PRIMARY KEY,
            created_at {time} NOT NULL,
            queued_at {time} NOT NULL,
            started_at {time},
            ended_at {time},
            project_id {name},
            entry_id {name},
            node TEXT NOT NULL,
            kind TEXT NOT NULL,
            status TEXT NOT NULL,
            cancel BOOLEAN NOT NULL,
            stage TEXT NOT NULL,
            fraction FLOAT,
            left_s FLOAT,
            failure TEXT NOT NULL,
            log TEXT NOT NULL,
            content TEXT NOT NULL
        )
    """)
    execute("CREATE INDEX job_by_status ON job (status, queued_at)")
    execute("CREATE INDEX job_by_entry ON job (entry_id)")
    execute(f"ALTER TABLE entry ADD COLUMN project_id {name}")
    execute("ALTER TABLE entry ADD COLUMN brief TEXT DEFAULT '' NOT NULL")
    execute("CREATE INDEX entry_by_project ON entry (project_id, created_at, id)")
    execute("CREATE INDEX entry_by_model ON entry (model_digest, created_at, id)")
