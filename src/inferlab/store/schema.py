"""The tables; `migrations/` makes them, and a test compares the two."""

from __future__ import annotations

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, LargeBinary, MetaData, String, Table, Text

# 1: entries, cells, runs.
SCHEMA_VERSION = 1
#: Not alembic's own name: a PostgreSQL database may be shared with a program that has that one.
VERSION_TABLE = "inferlab_version"

metadata = MetaData()


def _ordered(length: int) -> String:
    """Text that is compared byte by byte: PostgreSQL would follow the rules of a language."""
    return String(length).with_variant(String(length, collation="C"), "postgresql")


#: A benchmark, or a document; both share their ids and the history.
entry = Table(
    "entry",
    metadata,
    Column("id", _ordered(10), primary_key=True),
    # ISO 8601 in UTC with microseconds, so that its order is that of time.
    Column("created_at", _ordered(27), nullable=False),
    Column("kind", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("model_digest", Text, nullable=False),
    Column("inferlab_version", Text, nullable=False),
    Column("node", Text, nullable=False),
    Column("note", Text, nullable=False),
    # JSON: {"plan": …, "model": …}, or the document. Text, because JSON proper has no infinities and no NaN.
    Column("content", Text, nullable=False),
    Index("entry_by_time", "created_at", "id"),
)

#: What begins with cached_ is derived from the runs and can be made again: `Store.rebuild`.
cell = Table(
    "cell",
    metadata,
    Column("row", Integer, primary_key=True),
    Column("entry_id", _ordered(10), ForeignKey("entry.id", ondelete="CASCADE"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("cell_id", Text, nullable=False),
    Column("engine", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("failure", Text),
    Column("cached_items_per_sec", Float(53)),
    Column("cached_items_per_sec_low", Float(53)),
    Column("cached_items_per_sec_high", Float(53)),
    Column("cached_median_ms", Float(53)),
    Column("cached_median_ms_low", Float(53)),
    Column("cached_median_ms_high", Float(53)),
    Column("content", Text, nullable=False),
    Index("cell_by_entry", "entry_id", "position", unique=True),
)

run = Table(
    "run",
    metadata,
    Column("row", Integer, primary_key=True),
    Column("cell_row", Integer, ForeignKey("cell.row", ondelete="CASCADE"), nullable=False),
    Column("position", Integer, nullable=False),
    Column("started_at", Text, nullable=False),
    # JSON of everything but the samples, which store/samples.py packs.
    Column("content", Text, nullable=False),
    Column("samples", LargeBinary, nullable=False),
    Index("run_by_cell", "cell_row", "position", unique=True),
)
