"""The tables as `migrations/` makes them, and how their version is told.

entry   A benchmark, or a document; both share their ids and the history. `created_at` is ISO 8601 in UTC with
        microseconds, so that its order is that of time. `content` is JSON: {"plan": …, "model": …}, or the
        document. Text, because JSON proper has no infinities and no NaN. `brief` is derived from it for lists.
        Without a `project_id` it belongs to every project of its model.
cell    A cell of a benchmark. What begins with cached_ is derived from the runs and can be made again:
        `Store.rebuild`.
run     What one process measured. `content` is JSON of everything but the samples, which `samples.py` packs.
project A model with a name; `content` is the model as JSON, with the `input_shapes` of the project beside its
        fields.
job     What is to be measured, is measured or was; `content` is what was asked, as JSON. Only the runner of
        its `node` takes it out of the queue; `queued_at` is its place in it.
"""

from __future__ import annotations

# 1: entries, cells, runs. 2: cell.cached_wrong. 3: projects, jobs, entry.project_id, entry.brief.
SCHEMA_VERSION = 3
#: Not alembic's own name: a PostgreSQL database may be shared with a program that has that one.
VERSION_TABLE = "inferlab_version"
TABLES = frozenset({"entry", "cell", "run", "project", "job"})
