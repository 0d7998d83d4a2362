"""The queue: what is to be measured, in the order in which it was asked for, and how far each is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from inferlab.codec import dumps, parse_json
from inferlab.errors import Conflict, NotThere
from inferlab.machine import node_name
from inferlab.store import rows
from inferlab.store.database import Connection, Database, Row, among, insert, update
from inferlab.store.entries import ALIVE, RESUMABLE, JobKind, JobStatus, QueuedJob

# All but the log, which may be long.
_COLUMNS = (
    "id, created_at, queued_at, started_at, ended_at, project_id, entry_id, node, kind, status, cancel, "
    "stage, fraction, left_s, failure, '' AS log, content"
)
_LONGEST_LOG = 200_000


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is."""

    stage: str
    fraction: float | None
    left_s: float | None


class Jobs:
    """The queue of a store. Users add, cancel and resume; only the runner takes, reports and ends."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # What users do.

    def add(self, kind: JobKind, project_id: str | None, content: Mapping[str, Any]) -> QueuedJob:
        """Put a job at the end of the queue."""
        moment = rows.now()
        values: Row = {
            "id": rows.new_id(),
            "created_at": moment,
            "queued_at": moment,
            "started_at": None,
            "ended_at": None,
            "project_id": project_id,
            "entry_id": None,
            "node": rows.safe(node_name()),
            "kind": kind,
            "status": "queued",
            "cancel": False,
            "stage": "",
            "fraction": None,
            "left_s": None,
            "failure": "",
            "log": "",
            "content": dumps(content),
        }
        with self._database.writing() as connection:
            insert(connection, "job", values)
        return _job(values)

    def cancel(self, job_id: str) -> QueuedJob:
        """Ask a running job to end, or take a waiting one out of the queue; what has ended stays as it is."""
        with self._database.writing() as connection:
            job = _locked(connection, job_id)
            if job.status == "queued":
                update(connection, "job", job_id, status="cancelled", ended_at=rows.now(), cancel=True)
            elif job.status == "running":
                update(connection, "job", job_id, cancel=True)
            return _get_job(connection, job_id)

    def resume(self, job_id: str) -> QueuedJob:
        """Put a job that was cut off at the end of the queue again."""
        with self._database.writing() as connection:
            job = _locked(connection, job_id)
            if job.status not in RESUMABLE:
                raise Conflict(f"This job is {job.status}: only one that was cut off can go on.")
            fresh: Row = {"status": "queued", "queued_at": rows.now(), "ended_at": None, "cancel": False}
            update(connection, "job", job_id, **fresh, stage="", fraction=None, left_s=None, failure="")
            return _get_job(connection, job_id)

    def remove(self, job_id: str) -> None:
        """Forget a job that has ended."""
        with self._database.writing() as connection:
            if _locked(connection, job_id).alive:
                raise Conflict("This job has not ended yet. Cancel it first.")
            connection.rows("DELETE FROM job WHERE id = :id", id=job_id)

    def get(self, job_id: str) -> QueuedJob:
        """The job with this id, its log included."""
        with self._database.reading() as connection:
            return _get_job(connection, job_id)

    def alive(self) -> list[QueuedJob]:
        """What is running and what waits, in the order of the queue."""
        condition, values = among("status", ALIVE)
        return self._listed(f"{condition} ORDER BY status DESC, queued_at, id", values)

    def recent(self, limit: int = 20) -> list[QueuedJob]:
        """What has ended, the last first."""
        condition, values = among("status", ALIVE)
        return self._listed(f"NOT {condition} ORDER BY ended_at DESC, id LIMIT {int(limit)}", values)

    def of_project(self, project_id: str) -> list[QueuedJob]:
        """What a project shows beside its entries, newest first: jobs on their way, or without an entry."""
        condition, values = among("status", ALIVE)
        unseen = "status <> 'done' AND (entry_id IS NULL OR entry_id NOT IN (SELECT entry.id FROM entry))"
        return self._listed(
            f"project_id = :project AND ({condition} OR ({unseen})) ORDER BY created_at DESC, id",
            {**values, "project": project_id},
        )

    def of_entries(self, entry_ids: Sequence[str]) -> dict[str, QueuedJob]:
        """The newest job of each of these entries that has one."""
        if not entry_ids:
            return {}
        condition, values = among("entry_id", entry_ids)
        jobs = self._listed(f"{condition} ORDER BY queued_at, id", values)
        return {str(job.entry_id): job for job in jobs}

    # What the runner does.

    def take(self) -> QueuedJob | None:
        """The next job of this machine, which is running from now on."""
        with self._database.writing() as connection:
            query = "SELECT id FROM job WHERE status = 'queued' AND node = :node ORDER BY queued_at, id LIMIT 1"
            waiting = connection.rows(query + connection.lock, node=rows.safe(node_name()))
            if not waiting:
                return None
            job_id = waiting[0]["id"]
            update(connection, "job", job_id, status="running", started_at=rows.now(), cancel=False)
            return _get_job(connection, job_id)

    def report(self, job_id: str, progress: Progress, log: str | None = None) -> bool:
        """Say how far a running job is; tells whether it shall end. A log that is given replaces the older."""
        with self._database.writing() as connection:
            values: Row = {
                "stage": rows.safe(progress.stage),
                "fraction": progress.fraction,
                "left_s": progress.left_s,
            }
            if log is not None:
                values["log"] = rows.safe(log[-_LONGEST_LOG:])
            update(connection, "job", job_id, **values)
            rows_of_job = connection.rows("SELECT cancel FROM job WHERE id = :id", id=job_id)
        # One that is gone, with its project, shall end too.
        return not rows_of_job or bool(rows_of_job[0]["cancel"])

    def belongs(self, job_id: str, entry_id: str) -> None:
        """Say which entry a job makes."""
        with self._database.writing() as connection:
            update(connection, "job", job_id, entry_id=entry_id)

    def end(self, job_id: str, status: JobStatus, failure: str = "") -> None:
        """Say what became of a job."""
        with self._database.writing() as connection:
            values: Row = {"fraction": 1.0} if status == "done" else {}
            values |= {"ended_at": rows.now(), "left_s": None, "failure": rows.safe(failure)}
            update(connection, "job", job_id, status=status, **values)

    def interrupt_running(self) -> int:
        """Nobody works on what counts as running here: it was interrupted; returns how many that were."""
        with self._database.writing() as connection:
            query = "SELECT id FROM job WHERE status = 'running' AND node = :node"
            running = connection.rows(query, node=rows.safe(node_name()))
            for row in running:
                update(connection, "job", row["id"], status="interrupted", ended_at=rows.now(), left_s=None)
        return len(running)

    def _listed(self, condition: str, values: Mapping[str, Any]) -> list[QueuedJob]:
        with self._database.reading() as connection:
            query = f"SELECT {_COLUMNS} FROM job WHERE {condition}"  # noqa: S608
            return [_job(row) for row in connection.rows(query, **values)]


def _locked(connection: Connection, job_id: str) -> QueuedJob:
    return _get_job(connection, job_id, connection.lock)


def _get_job(connection: Connection, job_id: str, lock: str = "") -> QueuedJob:
    job_rows = connection.rows(f"SELECT * FROM job WHERE id = :id{lock}", id=job_id)  # noqa: S608
    if not job_rows:
        raise NotThere(f"There is no job {job_id!r}.")
    return _job(job_rows[0])


def _job(row: Row) -> QueuedJob:
    times = {
        name: row[name] and rows.moment(row[name])
        for name in ("created_at", "queued_at", "started_at", "ended_at")
    }
    return QueuedJob(**{**row, **times, "cancel": bool(row["cancel"]), "content": parse_json(row["content"])})
