"""Projects: models with a name, and what was measured of each."""

from __future__ import annotations

import json

from inferlab.errors import BadInput
from inferlab.records import Model
from inferlab.store import rows
from inferlab.store.connection import Connection, Database, Row, insert
from inferlab.store.entries import BENCHMARK, CellEntry, Project, ProjectLine
from inferlab.store.history import OF_PROJECT, cell_entry
from inferlab.store.serialize import dumps, plain, restored

# As OF_PROJECT, for all projects at once.
_JOINED = (
    "(entry.project_id = project.id OR (entry.project_id IS NULL AND entry.model_digest = project.model_digest))"
)


class Projects:
    """The projects of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, name: str, description: str, model: Model) -> Project:
        """Make a project."""
        moment = rows.now()
        values = {
            "id": rows.new_id(),
            "created_at": moment,
            "changed_at": moment,
            "name": rows.safe(name),
            "description": rows.safe(description),
            "model_digest": model.digest,
            "content": dumps(plain(model)),
        }
        with self._database.writing() as connection:
            insert(connection, "project", values)
        return _project(values)

    def get(self, project_id: str) -> Project:
        """The project with this id."""
        with self._database.reading() as connection:
            return self._found(connection, project_id)

    def has(self, project_id: str) -> bool:
        """Whether there is such a project."""
        with self._database.reading() as connection:
            return bool(connection.rows("SELECT 1 AS one FROM project WHERE id = :id", id=project_id))

    def change(self, project_id: str, name: str, description: str) -> Project:
        """Give a project another name and description."""
        with self._database.writing() as connection:
            self._found(connection, project_id)
            connection.rows(
                "UPDATE project SET name = :name, description = :description, changed_at = :now WHERE id = :id",
                id=project_id,
                name=rows.safe(name),
                description=rows.safe(description),
                now=rows.now(),
            )
            return self._found(connection, project_id)

    def remove(self, project_id: str) -> Project:
        """Remove a project with its jobs and all entries that were made in it."""
        with self._database.writing() as connection:
            found = self._found(connection, project_id)
            for table in ("entry", "job"):
                connection.rows(f"DELETE FROM {table} WHERE project_id = :id", id=project_id)  # noqa: S608
            connection.rows("DELETE FROM project WHERE id = :id", id=project_id)
        return found

    def take(self, project_id: str, entry_id: str) -> None:
        """Let an entry belong to a project."""
        with self._database.writing() as connection:
            self._found(connection, project_id)
            connection.rows(
                "UPDATE entry SET project_id = :project WHERE id = :id", id=entry_id, project=project_id
            )

    def belongs(self, project_id: str, entry_id: str) -> bool:
        """Whether an entry is one of a project's."""
        query = f"SELECT 1 AS one FROM entry WHERE id = :id AND {OF_PROJECT}"  # noqa: S608
        with self._database.reading() as connection:
            return bool(connection.rows(query, id=entry_id, project=project_id))

    def counts(self, project_id: str) -> dict[str, int]:
        """How many entries of each kind were made in a project, and would be removed with it."""
        query = "SELECT kind, count(*) AS entries FROM entry WHERE project_id = :id GROUP BY kind"
        with self._database.reading() as connection:
            return {row["kind"]: row["entries"] for row in connection.rows(query, id=project_id)}

    def lines(self) -> list[ProjectLine]:
        """All projects, the one that was active last first."""
        with self._database.reading() as connection:
            found = connection.rows("SELECT * FROM project")
            counted = _counted(connection)
            best = _best(connection)
        lines = []
        for row in found:
            kinds = counted.get(row["id"], {})
            active = max([row["changed_at"], *(last for _, last in kinds.values())])
            lines.append(
                ProjectLine(
                    _project(row),
                    kinds.get(BENCHMARK, (0, ""))[0] + kinds.get("comparison", (0, ""))[0],
                    kinds.get("profile", (0, ""))[0],
                    rows.moment(active),
                    best.get(row["id"]),
                )
            )
        return sorted(lines, key=lambda line: line.active_at, reverse=True)

    def unfiled(self, limit: int = 5) -> list[tuple[str, int]]:
        """Models that were measured without a project, as the user named them, and how often; newest first."""
        query = (
            "SELECT title, count(*) AS entries FROM entry WHERE project_id IS NULL AND kind = :kind "
            "AND model_digest NOT IN (SELECT project.model_digest FROM project) "
            "GROUP BY title ORDER BY max(created_at) DESC LIMIT :limit"
        )
        with self._database.reading() as connection:
            return [(row["title"], row["entries"]) for row in connection.rows(query, kind=BENCHMARK, limit=limit)]

    @staticmethod
    def _found(connection: Connection, project_id: str) -> Project:
        found = connection.rows("SELECT * FROM project WHERE id = :id", id=project_id)
        if not found:
            raise BadInput(
                f"There is no project {project_id!r}: it may have been deleted. See the list of projects."
            )
        return _project(found[0])


def _project(row: Row) -> Project:
    return Project(
        row["id"],
        rows.moment(row["created_at"]),
        rows.moment(row["changed_at"]),
        row["name"],
        row["description"],
        restored(Model, json.loads(row["content"])),
    )


def _counted(connection: Connection) -> dict[str, dict[str, tuple[int, str]]]:
    """By project and kind, how many entries it has and when the last was made."""
    query = (
        "SELECT project.id AS project, entry.kind AS kind, count(*) AS entries, "  # noqa: S608
        "max(entry.created_at) AS last "
        f"FROM project JOIN entry ON {_JOINED} GROUP BY project.id, entry.kind"
    )
    found: dict[str, dict[str, tuple[int, str]]] = {}
    for row in connection.rows(query):
        found.setdefault(row["project"], {})[row["kind"]] = (row["entries"], row["last"])
    return found


def _best(connection: Connection) -> dict[str, CellEntry]:
    """By project, the cell of highest throughput whose outputs are right."""
    right = "cell.status = 'done' AND cell.cached_items_per_sec IS NOT NULL AND NOT cell.cached_wrong"
    # The rows are numbered rather than sorted in Python: a project may have ten thousand of them.
    ranked = (
        "SELECT project.id AS project, cell.row AS number, row_number() OVER "  # noqa: S608
        "(PARTITION BY project.id ORDER BY cell.cached_items_per_sec DESC) AS place "
        f"FROM project JOIN entry ON {_JOINED} AND entry.kind = 'benchmark' "
        f"JOIN cell ON cell.entry_id = entry.id AND {right}"
    )
    runs = "SELECT count(*) FROM run WHERE run.cell_row = cell.row"
    query = (
        f"SELECT ranked.project, cell.*, ({runs}) AS runs FROM ({ranked}) ranked "  # noqa: S608
        "JOIN cell ON cell.row = ranked.number WHERE ranked.place = 1"
    )
    return {row["project"]: cell_entry(row) for row in connection.rows(query)}
