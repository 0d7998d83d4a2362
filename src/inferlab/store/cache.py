"""What lists show, derived from runs and documents and kept beside them so that none need be opened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from inferlab.codec import restored
from inferlab.parsing import parse_json
from inferlab.records import Cell, Estimate, Run, Summary
from inferlab.store import rows
from inferlab.store.briefs import brief_of, digest_of
from inferlab.store.connection import Connection

#: The columns that are derived are called so, then after their field of a `CellEntry`.
PREFIX = "cached_"


def runs_of(connection: Connection, cell_row: int) -> Iterator[Run]:
    """The runs of a cell, in the order in which they were saved."""
    from inferlab.store.samples import unpack

    for row in rows.runs(connection, cell_row):
        yield restored(Run, parse_json(row["content"]), unpack(row["samples"]))


def refresh(connection: Connection, cell_row: int) -> bool:
    """Derive what is shown of a cell from its runs again; says whether there are numbers."""
    found = connection.rows("SELECT content FROM cell WHERE cell.row = :row", row=cell_row)
    if not found:
        return False
    try:
        runs = list(runs_of(connection, cell_row))
    except ValueError:
        # Damaged runs must not keep a cell from being finished; whoever opens it is told.
        runs = []
    summary = _summary(restored(Cell, parse_json(found[0]["content"])), runs)
    values = {
        **_numbers("items_per_sec", None if summary is None else summary.items_per_sec),
        **_numbers("median_ms", None if summary is None else summary.median_ms),
        "wrong": any(run.check.status == "mismatch" for run in runs),
    }
    changes = ", ".join(f"{PREFIX}{name} = :{name}" for name in values)
    connection.rows(f"UPDATE cell SET {changes} WHERE cell.row = :row", row=cell_row, **values)  # noqa: S608
    return summary is not None


def refresh_briefs(connection: Connection) -> None:
    """Derive what lists show of documents from their content again."""
    for row in connection.rows("SELECT id FROM entry WHERE kind <> 'benchmark'"):
        # One by one: all contents together may be more than the memory holds.
        (entry,) = connection.rows("SELECT kind, content, model_digest FROM entry WHERE id = :id", id=row["id"])
        try:
            content = parse_json(entry["content"])
        except (ValueError, TypeError, RecursionError):
            content = None
        if isinstance(content, dict):  # else it is damaged, and whoever opens it is told
            connection.rows(
                "UPDATE entry SET brief = :brief, model_digest = :digest WHERE id = :id",
                id=row["id"],
                brief=brief_of(entry["kind"], content),
                digest=entry["model_digest"] or digest_of(content),
            )


def _summary(measured: Cell, runs: Sequence[Run]) -> Summary | None:
    from inferlab.measure.stats import summarize

    try:
        return summarize(measured, runs)
    except (ValueError, ArithmeticError):
        # Nor must runs that no statistics can be made of, as by a clock that stood still.
        return None


def _numbers(name: str, found: Estimate | None) -> dict[str, float | None]:
    value, low, high = (None, None, None) if found is None else (found.value, found.low, found.high)
    return {name: value, f"{name}_low": low, f"{name}_high": high}
