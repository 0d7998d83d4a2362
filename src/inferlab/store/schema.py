"""The tables as `migrations/` makes them, and how their version is told.

entry   A benchmark, or a document; both share their ids and the history. `created_at` is ISO 8601 in UTC with
        microseconds, so that its order is that of time. `content` is JSON: {"plan": …, "model": …}, or the
        document. Text, because JSON proper has no infinities and no NaN.
cell    A cell of a benchmark. What begins with cached_ is derived from the runs and can be made again:
        `Store.rebuild`.
run     What one process measured. `content` is JSON of everything but the samples, which `samples.py` packs.
"""

from __future__ import annotations

# 1: entries, cells, runs. 2: cell.cached_wrong.
SCHEMA_VERSION = 2
#: Not alembic's own name: a PostgreSQL database may be shared with a program that has that one.
VERSION_TABLE = "inferlab_version"
TABLES = frozenset({"entry", "cell", "run"})
