"""The store: every run is saved when it ends, and comes back as it was."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sqlalchemy import Connection, RowMapping, delete, func, insert, select, update

from inferlab.errors import BadInput, InferlabError
from inferlab.records import Benchmark, Cell, Failure, Model, Outcome, Plan, Run, Status
from inferlab.store import cache, history, rows
from inferlab.store.database import Database, shrink
from inferlab.store.entries import Document, Entry, Heading, Stored
from inferlab.store.problems import explained
from inferlab.store.schema import cell, entry, run
from inferlab.store.serialize import dumps, plain, restored

BENCHMARK = "benchmark"
# Dates before the year 1 do not exist.
_MOST_DAYS = 100_000


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
        self._database.reader.dispose()
        self._database.writer.dispose()

    @property
    def name(self) -> str:
        """The path or URL, without its password."""
        return self._database.label

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        with explained(self.name), self._database.reader.connect() as connection:
            yield connection

    @contextmanager
    def _writing(self) -> Iterator[Connection]:
        with explained(self.name), self._database.writer.begin() as connection:
            yield connection

    # Writing.

    def begin(self, plan: Plan, model: Model, cells: Sequence[Cell]) -> str:
        """Save a benchmark before it is measured, all its cells pending; the id is its name from then on."""
        content = {"plan": plain(plan), "model": plain(model)}
        with self._writing() as connection:
            entry_id = rows.insert(connection, BENCHMARK, model.source, model.digest, content)
            made = [
                {
                    "entry_id": entry_id,
                    "position": position,
                    "cell_id": one.id,
                    "engine": rows.safe(one.engine),
                    "status": "pending",
                    "content": dumps(plain(one)),
                }
                for position, one in enumerate(cells)
            ]
            if made:
                connection.execute(insert(cell), made)
        return entry_id

    def add_run(self, benchmark_id: str, cell_id: str, measured: Run) -> None:
        """Save what one process measured; it is on the disk when this returns."""
        from inferlab.store.samples import pack

        arrays: list[Any] = []
        content = dumps(plain(measured, arrays))
        blob = pack(arrays)
        with self._writing() as connection:
            row = rows.cell_row(connection, benchmark_id, cell_id)
            count = select(func.count()).select_from(run).where(run.c.cell_row == row)
            connection.execute(
                insert(run).values(
                    cell_row=row,
                    position=connection.execute(count).scalar_one(),
                    started_at=rows.safe(measured.started_at),
                    content=content,
                    samples=blob,
                )
            )

    def finish_cell(self, benchmark_id: str, cell_id: str, status: Status, failure: Failure | None = None) -> None:
        """Say what became of a cell, and cache the numbers that the history shows of it."""
        with self._writing() as connection:
            row = rows.cell_row(connection, benchmark_id, cell_id)
            connection.execute(
                update(cell)
                .where(cell.c.row == row)
                .values(status=status, failure=None if failure is None else dumps(plain(failure)))
            )
            cache.refresh(connection, row)

    def reopen(self, benchmark_id: str) -> str:
        """Let a benchmark that was cut off go on; returns its whole id.

        What was cancelled is pending again, without the runs that were cut short.
        """
        with self._writing() as connection:
            found = rows.found(connection, benchmark_id, self.name)
            stopped = (cell.c.entry_id == found) & (cell.c.status.in_(("cancelled", "pending")))
            for row in connection.execute(select(cell.c.row).where(stopped)).scalars().all():
                rows.drop_cut_runs(connection, row)
            connection.execute(update(cell).where(stopped).values(status="pending", failure=None))
        return found

    def last_unfinished(self) -> str | None:
        """The id of the newest benchmark with cells that were not measured, if there is one."""
        with self._reading() as connection:
            stopped = select(cell.c.entry_id).where(cell.c.status.in_(("cancelled", "pending")))
            query = select(entry.c.id).where(entry.c.id.in_(stopped))
            newest = query.order_by(entry.c.created_at.desc(), entry.c.id.desc()).limit(1)
            return connection.execute(newest).scalar()

    def add_document(self, kind: str, title: str, content: Mapping[str, Any]) -> str:
        """Save a result that is final JSON already, such as a comparison; returns its id."""
        if kind == BENCHMARK:
            raise InferlabError("A benchmark is saved run by run, not as a document.")
        with self._writing() as connection:
            return rows.insert(connection, kind, title, "", content)

    def note(self, entry_id: str, text: str) -> None:
        """Write a note beside an entry, in place of the one it had."""
        with self._writing() as connection:
            found = rows.found(connection, entry_id, self.name)
            connection.execute(update(entry).where(entry.c.id == found).values(note=rows.safe(text)))

    def remove(self, entry_id: str) -> str:
        """Remove an entry and all its runs; returns its whole id."""
        with self._writing() as connection:
            found = rows.found(connection, entry_id, self.name)
            connection.execute(delete(entry).where(entry.c.id == found))
        return found

    def prune(
        self, keep: int | None = None, older_than_days: float | None = None, dry_run: bool = False
    ) -> list[str]:
        """Remove what is not among the newest `keep` and is older than so many days; returns ids, newest first.

        What is not given does not protect; one of the two must be.
        """
        if keep is None and older_than_days is None:
            raise BadInput("Say what to prune: how many to keep, or from how many days on to remove.")
        if (keep or 0) < 0 or not 0 <= (older_than_days or 0) <= _MOST_DAYS:
            raise BadInput(f"The number to keep and the days must be 0 or more (days: up to {_MOST_DAYS}).")
        query = select(entry.c.id).order_by(entry.c.created_at.desc(), entry.c.id.desc())
        if older_than_days is not None:
            limit = datetime.now(UTC) - timedelta(days=older_than_days)
            query = query.where(entry.c.created_at < rows.stamp(limit))
        with self._writing() if not dry_run else self._reading() as connection:
            newest = select(entry.c.id).order_by(entry.c.created_at.desc(), entry.c.id.desc()).limit(keep or 0)
            kept = set(connection.execute(newest).scalars())
            gone = [one for one in connection.execute(query).scalars() if one not in kept]
            if not dry_run:
                for one in gone:
                    connection.execute(delete(entry).where(entry.c.id == one))
        if gone and not dry_run:
            shrink(self._database)
        return gone

    def rebuild(self) -> int:
        """Make the cached numbers of all finished cells again; returns how many cells have some."""
        with self._reading() as connection:
            finished = list(connection.execute(select(cell.c.row).where(cell.c.status != "pending")).scalars())
        made = 0
        for row in finished:
            with self._writing() as connection:
                made += cache.refresh(connection, row)
        return made

    def import_file(self, path: Path) -> list[str]:
        """Take in what `export` wrote, all of it or nothing; returns the ids that were new."""
        from inferlab.store import exchange

        with exchange.opened(path) as lines, self._writing() as connection:
            return exchange.take(connection, lines)

    # Reading.

    def get(self, entry_id: str) -> Stored | Document:
        """The benchmark or document with this id, as it was saved."""
        with self._reading() as connection, self._sound():
            found = rows.found(connection, entry_id, self.name)
            row = connection.execute(select(entry).where(entry.c.id == found)).mappings().one()
            content = json.loads(row["content"])
            common = (found, rows.moment(row["created_at"]), row["inferlab_version"], row["node"], row["note"])
            if row["kind"] != BENCHMARK:
                return Document(*common, row["kind"], row["title"], content)
            cells = connection.execute(
                select(cell).where(cell.c.entry_id == found).order_by(cell.c.position)
            ).mappings()
            outcomes = tuple(_outcome(connection, one) for one in cells.all())
            plan, model = restored(Plan, content["plan"]), restored(Model, content["model"])
            return Stored(*common, Benchmark(plan, model, outcomes, found))

    def has(self, entry_id: str) -> bool:
        """Whether one entry, and no other, has this id."""
        with self._reading() as connection:
            try:
                return bool(rows.found(connection, entry_id, self.name))
            except BadInput:
                return False

    def unfinished(self, benchmark_id: str) -> list[str]:
        """The ids of the cells that are still pending; some may have runs already."""
        with self._reading() as connection:
            found = rows.found(connection, benchmark_id, self.name)
            pending = (cell.c.entry_id == found) & (cell.c.status == "pending")
            return list(
                connection.execute(select(cell.c.cell_id).where(pending).order_by(cell.c.position)).scalars()
            )

    def history(
        self,
        limit: int = 20,
        before: str | None = None,
        model: str | None = None,
        engine: str | None = None,
        status: Status | None = None,
    ) -> list[Entry]:
        """The newest entries, without opening their runs; `before` is the last id of the page before."""
        with self._reading() as connection, self._sound():
            after = None if before is None else rows.found(connection, before, self.name)
            return history.page(connection, limit, after, model, engine, status)

    def headings(self, ids: Sequence[str]) -> list[Heading]:
        """What the entries with these ids are called, each once; those that cannot be read in full as well."""
        columns = (entry.c.id, entry.c.created_at, entry.c.kind, entry.c.title, entry.c.note)
        with self._reading() as connection, self._sound():
            wanted = dict.fromkeys(rows.found(connection, one, self.name) for one in ids)
            found = [connection.execute(select(*columns).where(entry.c.id == one)).one() for one in wanted]
            return [Heading(one.id, rows.moment(one.created_at), one.kind, one.title, one.note) for one in found]

    def export(self, ids: Sequence[str] | None = None) -> Iterator[bytes]:
        """The lines of a file that `import_file` takes in again, of these entries or of all."""
        with self._reading() as connection:
            if ids is None:
                wanted = list(
                    connection.execute(select(entry.c.id).order_by(entry.c.created_at, entry.c.id)).scalars()
                )
            else:
                wanted = list(dict.fromkeys(rows.found(connection, one, self.name) for one in ids))
        return self._lines(wanted)

    def _lines(self, ids: Sequence[str]) -> Iterator[bytes]:
        from inferlab.store import exchange

        with self._reading() as connection:
            yield from exchange.give(connection, ids)

    @contextmanager
    def _sound(self) -> Iterator[None]:
        """What cannot be read back is told of, not taken for a fault in the program."""
        try:
            yield
        except (ValueError, KeyError, TypeError) as error:
            raise InferlabError(f"The store {self.name} holds something that cannot be read: {error}.") from error


def _outcome(connection: Connection, row: RowMapping) -> Outcome:
    failure = None if row["failure"] is None else restored(Failure, json.loads(row["failure"]))
    runs = tuple(cache.runs_of(connection, row["row"]))
    return Outcome(restored(Cell, json.loads(row["content"])), row["status"], runs, failure)
