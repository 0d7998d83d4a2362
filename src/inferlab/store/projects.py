"""Projects: models with a name, and what was measured of each."""

from __future__ import annotations

import math

from inferlab.codec import dumps, parse_json, plain, restored
from inferlab.errors import NotThere
from inferlab.measure import stats
from inferlab.records import Model
from inferlab.records.generation import GenerativeModel
from inferlab.store import rows
from inferlab.store.database import Connection, Database, Row, insert, update
from inferlab.store.entries import BENCHMARK, CellEntry, Project, ProjectLine
from inferlab.store.rows import OF_PROJECT, cell_entry, counted_cells

# As OF_PROJECT, for all projects at once: the id of a project, or the digest of a model, which may be several's.
# Joining by either of them would read all entries once for each project.
_OWNER = "coalesce(entry.project_id, entry.model_digest)"


class Projects:
    """The projects of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(
        self,
        name: str,
        description: str,
        model: Model,
        input_shapes: str = "",
        generative: GenerativeModel | None = None,
    ) -> Project:
        """Make a project."""
        moment = rows.now()
        values = {
            "id": rows.new_id(),
            "created_at": moment,
            "changed_at": moment,
            "name": rows.safe(name),
            "description": rows.safe(description),
            "model_digest": model.digest,
            "content": _content(model, input_shapes, generative),
        }
        with self._database.writing() as connection:
            insert(connection, "project", values)
        return _project(values)

    def get(self, project_id: str) -> Project:
        """The project with this id."""
        with self._database.reading() as connection:
            return self._get(connection, project_id)

    def has(self, project_id: str) -> bool:
        """Whether there is such a project."""
        with self._database.reading() as connection:
            return bool(connection.rows("SELECT 1 AS one FROM project WHERE id = :id", id=project_id))

    def change(self, project_id: str, name: str, description: str, input_shapes: str | None = None) -> Project:
        """Give a project another name and description, and where they are given, other input shapes."""
        with self._database.writing() as connection:
            before = self._get(connection, project_id)
            shapes = before.input_shapes if input_shapes is None else input_shapes
            update(
                connection,
                "project",
                project_id,
                name=rows.safe(name),
                description=rows.safe(description),
                content=_content(before.model, shapes, before.generative),
                changed_at=rows.now(),
            )
            return self._get(connection, project_id)

    def remove(self, project_id: str) -> Project:
        """Remove a project with its jobs and all entries that were made in it."""
        with self._database.writing() as connection:
            project = self._get(connection, project_id)
            for table in ("entry", "job"):
                connection.rows(f"DELETE FROM {table} WHERE project_id = :id", id=project_id)  # noqa: S608
            connection.rows("DELETE FROM project WHERE id = :id", id=project_id)
        return project

    def take(self, project_id: str, entry_id: str) -> None:
        """Let an entry belong to a project."""
        with self._database.writing() as connection:
            self._get(connection, project_id)
            update(connection, "entry", entry_id, project_id=project_id)

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
            project_rows = connection.rows("SELECT * FROM project")
            counted = _counted(connection)
            best = _best(connection)
            generated = _best_tpot_ms(connection)
        lines = []
        for row in project_rows:
            owners = (row["id"], row["model_digest"])
            kinds = _together([counted.get(owner, {}) for owner in owners])
            active = max([row["changed_at"], *(last for _, last in kinds.values())])
            rivals = [best[owner] for owner in owners if owner in best]
            lines.append(
                ProjectLine(
                    _project(row),
                    sum(kinds.get(kind, (0, ""))[0] for kind in (BENCHMARK, "comparison", "generation")),
                    kinds.get("profile", (0, ""))[0],
                    rows.moment(active),
                    min(rivals, key=lambda rival: rival.ms_per_item, default=None),
                    min((generated[owner] for owner in owners if owner in generated), default=None),
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
    def _get(connection: Connection, project_id: str) -> Project:
        project_rows = connection.rows("SELECT * FROM project WHERE id = :id", id=project_id)
        if not project_rows:
            raise NotThere(
                f"There is no project {project_id!r}: it may have been deleted. See the list of projects."
            )
        return _project(project_rows[0])


def _content(model: Model, input_shapes: str, generative: GenerativeModel | None) -> str:
    own = {} if generative is None else {"generative": plain(generative)}
    return dumps({**plain(model), "input_shapes": rows.safe(input_shapes), **own})


def _project(row: Row) -> Project:
    content = parse_json(row["content"])
    return Project(
        row["id"],
        rows.moment(row["created_at"]),
        rows.moment(row["changed_at"]),
        row["name"],
        row["description"],
        restored(Model, content),
        content.get("input_shapes", ""),
        restored(GenerativeModel, content["generative"]) if content.get("generative") else None,
    )


_Counts = dict[str, tuple[int, str]]


def _counted(connection: Connection) -> dict[str, _Counts]:
    """By owner and kind, how many entries there are and when the last was made."""
    query = (
        f"SELECT {_OWNER} AS owner, kind, count(*) AS entries, max(created_at) AS last "  # noqa: S608
        f"FROM entry GROUP BY {_OWNER}, kind"
    )
    counts: dict[str, _Counts] = {}
    for row in connection.rows(query):
        counts.setdefault(row["owner"], {})[row["kind"]] = (row["entries"], row["last"])
    return counts


def _together(parts: list[_Counts]) -> _Counts:
    """By kind, the counts of all of them."""
    counts: _Counts = {}
    for kind, (entries, last) in (pair for part in parts for pair in part.items()):
        before, latest = counts.get(kind, (0, ""))
        counts[kind] = (before + entries, max(latest, last))
    return counts


def _best(connection: Connection) -> dict[str, CellEntry]:
    """By owner, the cell of the lowest time per item whose outputs are right."""
    right = "cell.status = 'done' AND cell.cached_items_per_sec IS NOT NULL AND NOT cell.cached_wrong"
    # A comparison that was made elsewhere may be with another model.
    own = "(entry.kind = 'benchmark' OR entry.project_id IS NOT NULL)"
    candidates = connection.rows(
        f"SELECT {_OWNER} AS owner, cell.row AS number, cell.content, cell.cached_median_ms AS median_ms, "  # noqa: S608
        f"cell.cached_items_per_sec AS items_per_sec FROM entry JOIN cell ON cell.entry_id = entry.id "
        f"WHERE {own} AND {right}"
    )
    # There may be ten thousand of them, most of them the same cell measured again: its content is read once.
    fixed: dict[str, tuple[str, int] | None] = {}
    fastest: dict[str, tuple[float, int]] = {}
    for row in candidates:
        content = row["content"]
        if content not in fixed:
            fixed[content] = _scenario_and_batch(content)
        cell = fixed[content]
        time_ms = cell and stats.ms_per_item(*cell, row["median_ms"], row["items_per_sec"])
        if time_ms and time_ms < fastest.get(row["owner"], (math.inf, 0))[0]:
            fastest[row["owner"]] = time_ms, row["number"]
    if not fastest:
        return {}
    owners = {number: owner for owner, (_, number) in fastest.items()}
    return {owners[row["row"]]: cell_entry(row) for row in counted_cells(connection, "cell.row", list(owners))}


def _best_tpot_ms(connection: Connection) -> dict[str, float]:
    """By owner, the lowest time per output token of generations whose tokens are right."""
    query = f"SELECT {_OWNER} AS owner, brief FROM entry WHERE kind = 'generation'"  # noqa: S608
    best: dict[str, float] = {}
    for row in connection.rows(query):
        brief = parse_json(row["brief"] or "{}")
        for time_ms, wrong in zip(brief.get("tpot_ms", ()), brief.get("wrong", ()), strict=False):
            if time_ms is not None and not wrong:
                best[row["owner"]] = min(time_ms, best.get(row["owner"], math.inf))
    return best


def _scenario_and_batch(content: str) -> tuple[str, int] | None:
    """What the time per item of a cell depends on; None where its content is damaged."""
    try:
        cell = parse_json(content)
        return str(cell["scenario"]), int(cell["batch_size"])
    except (ValueError, LookupError, TypeError):
        return None
