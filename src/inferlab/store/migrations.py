"""From one version of the tables to the next, in both dialects.

`execute(sql, **values)` runs a statement with `:name` for each value and returns its rows as dictionaries. All run
in one transaction, in SQLite without its checks of foreign keys. A migration is frozen: it uses nothing of ours,
and once released it is not changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Execute = Callable[..., list[dict[str, Any]]]


def v0001_entries(execute: Execute, dialect: str) -> None:
    """The first tables: entries, cells, runs."""
    postgresql = dialect == "postgresql"
    # Byte order, in which ids and times are sorted and their beginnings found.
    ordered = ' COLLATE "C"' if postgresql else ""
    serial, blob = ("SERIAL", "BYTEA") if postgresql else ("INTEGER", "BLOB")
    execute(f"""
        CREATE TABLE entry (
            id VARCHAR(10){ordered} NOT NULL PRIMARY KEY,
            created_at VARCHAR(27){ordered} NOT NULL,
            kind TEXT NOT NULL,
            title TEXT NOT NULL,
            model_digest TEXT NOT NULL,
            inferlab_version TEXT NOT NULL,
            node TEXT NOT NULL,
            note TEXT NOT NULL,
            content TEXT NOT NULL
        )
    """)
    execute("CREATE INDEX entry_by_time ON entry (created_at, id)")
    execute(f"""
        CREATE TABLE cell (
            "row" {serial} NOT NULL PRIMARY KEY,
            entry_id VARCHAR(10){ordered} NOT NULL REFERENCES entry (id) ON DELETE CASCADE,
            position INTEGER NOT NULL,
            cell_id TEXT NOT NULL,
            engine TEXT NOT NULL,
            status TEXT NOT NULL,
            failure TEXT,
            cached_items_per_sec FLOAT,
            cached_items_per_sec_low FLOAT,
            cached_items_per_sec_high FLOAT,
            cached_median_ms FLOAT,
            cached_median_ms_low FLOAT,
            cached_median_ms_high FLOAT,
            content TEXT NOT NULL
        )
    """)
    execute("CREATE UNIQUE INDEX cell_by_entry ON cell (entry_id, position)")
    execute(f"""
        CREATE TABLE run (
            "row" {serial} NOT NULL PRIMARY KEY,
            cell_row INTEGER NOT NULL REFERENCES cell ("row") ON DELETE CASCADE,
            position INTEGER NOT NULL,
            started_at TEXT NOT NULL,
            content TEXT NOT NULL,
            samples {blob} NOT NULL
        )
    """)
    execute("CREATE UNIQUE INDEX run_by_cell ON run (cell_row, position)")


# As version 1 wrote it, and as it cannot stand within any text: there the quotes would be escaped.
_WRONG = '%"check":{"status":"mismatch"%'


def v0002_wrong(execute: Execute, dialect: str) -> None:
    """Beside a cell's numbers, whether its outputs were wrong: the history searched the text of all its runs."""
    execute("ALTER TABLE cell ADD COLUMN cached_wrong BOOLEAN")
    wrong_runs = "SELECT 1 FROM run WHERE run.cell_row = cell.row AND run.content LIKE :wrong"
    execute(f"UPDATE cell SET cached_wrong = EXISTS ({wrong_runs}) WHERE status <> 'pending'", wrong=_WRONG)  # noqa: S608


def v0003_projects(execute: Execute, dialect: str) -> None:
    """Projects and the queue of jobs; entries can belong to a project and have a brief that lists show."""
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


def v0004_labels(execute: Execute, dialect: str) -> None:
    """Labels of entries; beside a cell's numbers the engine's version, the machine and the memory, for series."""
    execute("ALTER TABLE entry ADD COLUMN labels TEXT DEFAULT '' NOT NULL")
    execute("ALTER TABLE cell ADD COLUMN cached_engine_version TEXT")
    execute("ALTER TABLE cell ADD COLUMN cached_machine TEXT")
    execute("ALTER TABLE cell ADD COLUMN cached_peak_memory_bytes FLOAT")


# None of them can stand within any text of a document: there the quotes would be escaped.
_RENAMED = {
    '"unjoined_share":': '"unattributed_share":',
    '"foretold_speedup":': '"predicted_speedup":',
    '"foretold_error":': '"predicted_error":',
    '"format":"inferlab-profile/1"': '"format":"inferlab-profile/2"',
    '"format":"inferlab-optimization/1"': '"format":"inferlab-optimization/2"',
}


def v0005_predicted(execute: Execute, dialect: str) -> None:
    """Profiles and versions under the keys and formats that they have since: plain words."""
    for before, after in _RENAMED.items():
        execute(
            "UPDATE entry SET content = replace(content, :before, :after) WHERE kind IN ('profile', 'version')",
            before=before,
            after=after,
        )
