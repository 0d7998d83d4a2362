"""The numbers that the history shows of a cell, kept beside it so that no samples need be opened."""

from __future__ import annotations

import json
from collections.abc import Iterator

from sqlalchemy import Connection, select, update

from inferlab.records import Cell, Run, Summary
from inferlab.store.schema import cell, run
from inferlab.store.serialize import restored

COLUMNS = tuple(column for column in cell.c if column.name.startswith("cached_"))


def runs_of(connection: Connection, cell_row: int) -> Iterator[Run]:
    """The runs of a cell, in the order in which they were saved."""
    from inferlab.store.samples import unpack

    query = select(run.c.content, run.c.samples).where(run.c.cell_row == cell_row).order_by(run.c.position)
    for content, blob in connection.execute(query):
        yield restored(Run, json.loads(content), unpack(blob))


def refresh(connection: Connection, cell_row: int) -> bool:
    """Derive a cell's numbers from its runs again; says whether there are any."""
    content = connection.execute(select(cell.c.content).where(cell.c.row == cell_row)).scalar()
    if content is None:
        return False
    summary = _summary(connection, restored(Cell, json.loads(content)), cell_row)
    values = dict.fromkeys((column.name for column in COLUMNS), None) if summary is None else _values(summary)
    connection.execute(update(cell).where(cell.c.row == cell_row).values(**values))
    return summary is not None


def _summary(connection: Connection, measured: Cell, cell_row: int) -> Summary | None:
    from inferlab.measure.stats import summarize

    try:
        return summarize(measured, list(runs_of(connection, cell_row)))
    except (ValueError, ArithmeticError):
        # Runs that no statistics can be made of (damaged, or by a clock that stood still) must not keep a cell
        # from being finished; whoever opens it is told.
        return None


def _values(summary: Summary) -> dict[str, float | None]:
    items, median = summary.items_per_sec, summary.median_ms
    return {
        "cached_items_per_sec": items.value,
        "cached_items_per_sec_low": items.low,
        "cached_items_per_sec_high": items.high,
        "cached_median_ms": median.value,
        "cached_median_ms_low": median.low,
        "cached_median_ms_high": median.high,
    }
