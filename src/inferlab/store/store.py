"""The store: every run is saved when it ends, and comes back as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from inferlab.codec import dumps, parse_json, restored
from inferlab.errors import BadInput, InferlabError
from inferlab.records import Benchmark, Cell, Failure, Model, Outcome, Plan, Run, Status
from inferlab.store import rows
from inferlab.store.database import Connection, Database, Row, update
from inferlab.store.entries import BENCHMARK, Document, Entry, Heading, Stored, brief_of, digest_of

if TYPE_CHECKING:
    from inferlab.store.jobs import Jobs
    from inferlab.store.projects import Projects

# Dates before the year 1 do not exist.
_MOST_DAYS = 100_000
# Of a profile, those that have a name.
_PARTS = ("performance", "loss")


class Store:
    """A database of benchmarks and documents; safe to share between threads, and between processes by its name.

    Wherever a user names an entry, the beginning of its id will do: four characters or more that no other has.
    Those who measure name theirs by the whole id.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections; the store opens new ones if it is used again."""
        self._database.close()

    @property
    def name(self) -> str:
        """The path or URL, without its password."""
        return self._database.label

    @property
    def projects(self) -> Projects:
        """The projects that it has."""
        from inferlab.store.projects import Projects  # late, as the queue: the history needs neither

        return Projects(self._database)

    @property
    def jobs(self) -> Jobs:
        """The queue of what is to be measured."""
        from inferlab.store.jobs import Jobs

        return Jobs(self._database)

    # Writing.

    def begin(
        self,
        plan: Plan,
        model: Model,
        cells: Sequence[Cell],
        project_id: str | None = None,
        against: str | None = None,
        labels: rows.Labels = (),
    ) -> str:
        """Save a benchmark before it is measured, all its cells pending; the id is its name from then on.

        `against` is the id of another benchmark that it is to be compared with.
        """
        content = {"plan": plan, "model": model, **({"against": against} if against else {})}
        with self._database.writing() as connection:
            entry_id = rows.insert_entry(
                connection, BENCHMARK, model.source, model.digest, content, project_id, labels
            )
            for position, cell in enumerate(cells):
                rows.insert_cell(connection, entry_id, position, cell, "pending")
        return entry_id

    def add_run(self, benchmark_id: str, cell_id: str, measured: Run) -> None:
        """Save what one process measured; it is on the disk when this returns."""
        with self._database.writing() as connection:
            row = rows.cell_row(connection, benchmark_id, cell_id)
            (before,) = connection.rows("SELECT count(*) AS runs FROM run WHERE cell_row = :row", row=row)
            rows.insert_run(connection, row, before["runs"], measured)

    def finish_cell(
        self,
        benchmark_id: str,
        cell_id: str,
        status: Status,
        failure: Failure | None = None,
        outcome: Outcome | None = None,
    ) -> None:
        """Say what became of a cell, and cache the numbers that the history shows of it.

        They come from the stored runs, or from `outcome`, which has the same runs.
        """
        with self._database.writing() as connection:
            row = rows.cell_row(connection, benchmark_id, cell_id)
            stored_failure = None if failure is None else dumps(failure)
            update(connection, "cell", row, status=status, failure=stored_failure)
            if outcome is None:
                rows.refresh(connection, row)
            else:
                rows.keep_numbers(connection, row, outcome.cell, outcome.runs)

    def reopen(self, benchmark_id: str) -> str:
        """Let a benchmark that was cut off go on; returns its whole id.

        What was cancelled, or lost with its machine, is pending again, without the runs that were cut short.
        """
        with self._database.writing() as connection:
            full_id = rows.find_id(connection, benchmark_id, self.name)
            for cell in rows.cells(connection, full_id):
                lost = (cell["failure"] or "").startswith(rows.LOST)
                if cell["status"] in ("cancelled", "pending") or lost:
                    rows.drop_cut_runs(connection, cell["row"])
                    update(connection, "cell", cell["row"], status="pending", failure=None)
        return full_id

    def last_unfinished(self) -> str | None:
        """The id of the newest benchmark with cells that were not measured, if there is one."""
        with self._database.reading() as connection:
            newest = connection.rows(
                "SELECT id FROM entry WHERE id IN (SELECT entry_id FROM cell WHERE status IN "
                "('cancelled', 'pending') OR failure LIKE :lost) ORDER BY created_at DESC, id DESC LIMIT 1",
                lost=f"{rows.LOST}%",
            )
            return newest[0]["id"] if newest else None

    def add_document(
        self,
        kind: str,
        title: str,
        content: Mapping[str, Any],
        outcomes: Sequence[Outcome] = (),
        project_id: str | None = None,
        labels: rows.Labels = (),
    ) -> str:
        """Save a result as its JSON, such as a comparison, with the cells measured for it; returns its id."""
        if kind == BENCHMARK:
            raise InferlabError("A benchmark is saved run by run, not as a document.")
        with self._database.writing() as connection:
            digest = digest_of(content)
            entry_id = rows.insert_entry(connection, kind, title, digest, content, project_id, labels)
            _add_outcomes(connection, entry_id, outcomes)
        return entry_id

    def replace_document(
        self,
        entry_id: str,
        content: Mapping[str, Any],
        outcomes: Sequence[Outcome] = (),
        keep: int | None = None,
    ) -> None:
        """Save more of a document that grows while it is made, and cells that were measured for it since.

        It keeps its name. Of the cells that it had, only the first `keep` stay where that is given.
        """
        with self._database.writing() as connection:
            full_id = rows.find_id(connection, entry_id, self.name)
            (before,) = connection.rows("SELECT kind, brief FROM entry WHERE id = :id", id=full_id)
            if before["kind"] == BENCHMARK:
                raise InferlabError("A benchmark is saved run by run, not as a document.")
            content = _with_names(before["kind"], content, parse_json(before["brief"] or "{}"))
            brief = brief_of(before["kind"], content)
            digest = digest_of(content)
            update(connection, "entry", full_id, content=dumps(content), brief=brief, model_digest=digest)
            if keep is not None:
                connection.rows(
                    "DELETE FROM cell WHERE entry_id = :id AND position >= :keep", id=full_id, keep=keep
                )
            _add_outcomes(connection, full_id, outcomes)

    def note(self, entry_id: str, text: str) -> None:
        """Write a note beside an entry, in place of the one it had."""
        with self._database.writing() as connection:
            full_id = rows.find_id(connection, entry_id, self.name)
            update(connection, "entry", full_id, note=rows.safe(text))

    def rename(self, entry_id: str, name: str) -> None:
        """Call an entry something else; the projects that show it are changed by that."""
        with self._database.writing() as connection:
            full_id = rows.find_id(connection, entry_id, self.name)
            (row,) = connection.rows("SELECT kind, content FROM entry WHERE id = :id", id=full_id)
            named = {"name": rows.safe(name)}
            content = _with_names(row["kind"], parse_json(row["content"]), dict.fromkeys(_PARTS, named) | named)
            update(connection, "entry", full_id, content=dumps(content), brief=brief_of(row["kind"], content))
            connection.rows(
                "UPDATE project SET changed_at = :now WHERE id = (SELECT project_id FROM entry WHERE id = :id) OR "
                "model_digest = (SELECT model_digest FROM entry WHERE id = :id AND project_id IS NULL)",
                id=full_id,
                now=rows.now(),
            )

    def remove(self, entry_id: str) -> str:
        """Remove an entry and all its runs; returns its whole id."""
        with self._database.writing() as connection:
            full_id = rows.find_id(connection, entry_id, self.name)
            rows.remove_entry(connection, full_id)
        return full_id

    def prune(
        self, keep: int | None = None, older_than_days: float | None = None, dry_run: bool = False
    ) -> list[str]:
        """Remove what is not among the newest `keep` and is older than this many days; returns ids, newest first.

        What is not given does not protect; one of the two must be.
        """
        if keep is None and older_than_days is None:
            raise BadInput("Say what to prune: how many to keep, or from how many days on to remove.")
        if (keep or 0) < 0 or not 0 <= (older_than_days or 0) <= _MOST_DAYS:
            raise BadInput(f"The number to keep and the days must be 0 or more (days: up to {_MOST_DAYS}).")
        limit = None if older_than_days is None else datetime.now(UTC) - timedelta(days=older_than_days)
        with self._database.writing() if not dry_run else self._database.reading() as connection:
            old = rows.newest_first(connection)[keep or 0 :]
            removed = [entry_id for entry_id, created_at in old if limit is None or created_at < rows.stamp(limit)]
            if not dry_run:
                for entry_id in removed:
                    rows.remove_entry(connection, entry_id)
        if removed and not dry_run:
            self._database.shrink()
        return removed

    def rebuild(self) -> int:
        """Make the cached numbers of all finished cells again; returns how many cells have some."""
        with self._database.reading() as connection:
            finished = connection.rows("SELECT cell.row FROM cell WHERE status <> 'pending'")
        count = 0
        for cell in finished:
            with self._database.writing() as connection:
                count += rows.refresh(connection, cell["row"])
        return count

    def import_file(self, path: Path) -> list[str]:
        """Take in what `export` wrote, all of it or nothing; returns the ids that were new."""
        from inferlab.store import exchange

        with exchange.opened(path) as lines, self._database.writing() as connection:
            return exchange.take(connection, lines)

    # Reading.

    def get(self, entry_id: str) -> Stored | Document:
        """The benchmark or document with this id, as it was saved."""
        with self._database.reading() as connection, self._sound():
            full_id = rows.find_id(connection, entry_id, self.name)
            row = rows.entry(connection, full_id)
            assert row is not None
            rows.texts(row, ("content", "created_at", "inferlab_version", "node", "note", "kind", "title"))
            content = parse_json(row["content"])
            if not isinstance(content, dict):
                raise ValueError(f"the content of {full_id} is not an object")
            common = (full_id, rows.moment(row["created_at"]), row["inferlab_version"], row["node"], row["note"])
            outcomes = tuple(_outcome(connection, cell) for cell in rows.cells(connection, full_id))
            labels = rows.read_labels(row["labels"])
            if row["kind"] != BENCHMARK:
                return Document(*common, row["kind"], row["title"], content, row["project_id"], outcomes, labels)
            plan, model = restored(Plan, content["plan"]), restored(Model, content["model"])
            benchmark = Benchmark(plan, model, outcomes, full_id)
            return Stored(*common, benchmark, row["project_id"], content.get("against"), labels)

    def has(self, entry_id: str) -> bool:
        """Whether one entry, and no other, has this id."""
        with self._database.reading() as connection:
            try:
                return bool(rows.find_id(connection, entry_id, self.name))
            except BadInput:
                return False

    def unfinished(self, benchmark_id: str) -> list[str]:
        """The ids of the cells that are still pending; some may have runs already."""
        with self._database.reading() as connection:
            full_id = rows.find_id(connection, benchmark_id, self.name)
            return [cell["cell_id"] for cell in rows.cells(connection, full_id) if cell["status"] == "pending"]

    def history(
        self,
        limit: int = 20,
        before: str | None = None,
        model: str | None = None,
        engine: str | None = None,
        status: Status | None = None,
        project_id: str | None = None,
        kinds: Sequence[str] = (),
        labels: rows.Labels = (),
    ) -> list[Entry]:
        """The newest entries, without opening their runs; `before` is the last id of the page before."""
        with self._database.reading() as connection, self._sound():
            after = None if before is None else rows.find_id(connection, before, self.name)
            return rows.history_page(connection, limit, after, model, engine, status, project_id, kinds, labels)

    def briefs(self, kind: str, limit: int) -> list[tuple[str, Mapping[str, Any]]]:
        """Where the newest entries of a kind were made, and their briefs."""
        query = "SELECT node, brief FROM entry WHERE kind = :kind ORDER BY created_at DESC, id DESC LIMIT :limit"
        with self._database.reading() as connection, self._sound():
            newest = connection.rows(query, kind=kind, limit=limit)
            return [(row["node"], parse_json(row["brief"] or "{}")) for row in newest]

    def entry(self, entry_id: str) -> Entry:
        """One line of the history."""
        with self._database.reading() as connection, self._sound():
            return rows.history_line(connection, rows.find_id(connection, entry_id, self.name))

    def stamp(self) -> tuple[str, ...]:
        """Something that changes whenever an entry, a run, a project or a job comes, goes, ends or is renamed."""
        newest = (
            "SELECT (SELECT count(*) FROM entry) AS entries, (SELECT max(created_at) FROM entry) AS entry, "
            "(SELECT count(*) FROM run) AS runs, "
            "(SELECT count(*) FROM project) AS projects, (SELECT max(changed_at) FROM project) AS project, "
            "(SELECT count(*) FROM job) AS jobs, (SELECT max(ended_at) FROM job) AS ended, "
            "(SELECT max(queued_at) FROM job) AS queued"
        )
        with self._database.reading() as connection:
            return tuple(str(value) for value in connection.rows(newest)[0].values())

    def headings(self, ids: Sequence[str]) -> list[Heading]:
        """What the entries with these ids are called, each once; those that cannot be read in full as well."""
        query = "SELECT id, created_at, kind, title, note FROM entry WHERE id = :id"
        with self._database.reading() as connection, self._sound():
            full_ids = dict.fromkeys(rows.find_id(connection, entry_id, self.name) for entry_id in ids)
            heading_rows = [row for full_id in full_ids for row in connection.rows(query, id=full_id)]
            for row in heading_rows:
                rows.texts(row, row)
            return [Heading(**{**row, "created_at": rows.moment(row["created_at"])}) for row in heading_rows]

    def export(self, ids: Sequence[str] | None = None) -> Iterator[bytes]:
        """The lines of a file that `import_file` takes in again, of these entries or of all."""
        with self._database.reading() as connection:
            if ids is None:
                chosen_ids = [entry_id for entry_id, _ in reversed(rows.newest_first(connection))]
            else:
                chosen_ids = list(dict.fromkeys(rows.find_id(connection, entry_id, self.name) for entry_id in ids))
        return self._lines(chosen_ids)

    def _lines(self, ids: Sequence[str]) -> Iterator[bytes]:
        from inferlab.store import exchange

        with self._database.reading() as connection, self._sound():
            yield from exchange.give(connection, ids)

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """What cannot be read back is told of, not taken for a fault in the program."""
        try:
            yield
        except InferlabError:
            raise
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
            reason = str(error) or type(error).__name__
            raise BadInput(
                f"The store {self.name} holds something that cannot be read: {reason}. "
                "List all that is: inferlab store check"
            ) from error


def _with_names(kind: str, content: Mapping[str, Any], brief: Mapping[str, Any]) -> Mapping[str, Any]:
    """A document under the names of a brief; a profile's parts have the name, all others the whole."""
    if kind != "profile":
        return {**content, "name": brief["name"]} if "name" in brief else content
    parts = [part for part in _PARTS if content.get(part) and brief.get(part)]
    return {**content, **{part: {**content[part], "name": brief[part]["name"]} for part in parts}}


def _add_outcomes(connection: Connection, entry_id: str, outcomes: Sequence[Outcome]) -> None:
    present = len(rows.cells(connection, entry_id))
    for position, outcome in enumerate(outcomes, present):
        row = rows.insert_cell(connection, entry_id, position, outcome.cell, outcome.status)
        for number, run in enumerate(outcome.runs):
            rows.insert_run(connection, row, number, run)
        rows.keep_numbers(connection, row, outcome.cell, outcome.runs)


def _outcome(connection: Connection, row: Row) -> Outcome:
    failure = None if row["failure"] is None else restored(Failure, parse_json(row["failure"]))
    runs = tuple(rows.runs_of(connection, row["row"]))
    return Outcome(restored(Cell, parse_json(row["content"])), row["status"], runs, failure)
