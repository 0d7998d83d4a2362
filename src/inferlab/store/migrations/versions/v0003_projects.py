"""Projects and the queue of jobs; entries can belong to a project and have a brief that lists show."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Make the tables, and fill in what documents did not have beside them."""
    ordered = "C" if op.get_bind().dialect.name == "postgresql" else None

    def name(column: str, **more: Any) -> sa.Column[str]:
        return sa.Column(column, sa.String(10, collation=ordered), **more)

    def time(column: str, nullable: bool = False) -> sa.Column[str]:
        return sa.Column(column, sa.String(27, collation=ordered), nullable=nullable)

    op.create_table(
        "project",
        name("id", primary_key=True),
        time("created_at"),
        time("changed_at"),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("model_digest", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_table(
        "job",
        name("id", primary_key=True),
        time("created_at"),
        time("queued_at"),
        time("started_at", nullable=True),
        time("ended_at", nullable=True),
        name("project_id", nullable=True),
        name("entry_id", nullable=True),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("cancel", sa.Boolean, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("fraction", sa.Float(53)),
        sa.Column("left_s", sa.Float(53)),
        sa.Column("failure", sa.Text, nullable=False),
        sa.Column("log", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
    )
    op.create_index("job_by_status", "job", ["status", "queued_at"])
    op.create_index("job_by_entry", "job", ["entry_id"])
    op.add_column("entry", name("project_id", nullable=True))
    op.add_column("entry", sa.Column("brief", sa.Text, nullable=False, server_default=""))
    op.create_index("entry_by_project", "entry", ["project_id", "created_at", "id"])
    op.create_index("entry_by_model", "entry", ["model_digest", "created_at", "id"])
    _fill()


def _fill() -> None:
    connection = op.get_bind()
    documents = sa.text("SELECT id, kind, content FROM entry WHERE kind <> 'benchmark'")
    update = sa.text("UPDATE entry SET brief = :brief, model_digest = :digest WHERE id = :id")
    for row in connection.execute(documents).mappings().all():
        try:
            content = json.loads(row["content"])
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict):
            continue  # Damaged, and whoever opens it is told.
        values = {"id": row["id"], "brief": _brief_of(row["kind"], content), "digest": _digest_of(content)}
        connection.execute(update, values)


# How briefs were derived when this version was made: later ones may derive them otherwise.

_Content = Mapping[str, Any]
# Of the measured part of a profile.
_PERFORMANCE = ("name", "engine", "batch_size", "num_cores", "ms_per_batch", "ms_interval", "items_per_second",
                "items_interval", "measured_at")  # fmt: skip
_LOSS = ("name", "method", "params", "average_sensitivity")
_VERSION = ("path", "digest", "size_bytes", "parameters", "zero_fraction", "precision")
_MEASURED = ("engine", "num_cores", "batch_size", "original_ms", "ms", "speedup", "speedup_interval", "level",
             "verdict", "foretold_speedup", "foretold_error")  # fmt: skip
_COMPARISON = ("verdict", "ratio", "interval", "paired", "outputs_match")


def _brief_of(kind: str, content: _Content) -> str:
    """The brief of an entry as JSON; empty where lists need nothing beside its title and cells."""
    make = {
        "profile": _profile,
        "comparison": _comparison,
        "benchmark": _benchmark,
        "version": _version,
    }.get(kind)
    try:
        found = make(content) if make else {}
    except (AttributeError, KeyError, TypeError, IndexError):
        # Kept by another version, or by hand: it is listed by its title.
        found = {}
    return json.dumps(found, separators=(",", ":")) if found else ""


def _digest_of(content: _Content) -> str:
    """The digest of the model that a document is about; of two that are compared, the first; empty if unknown."""
    first = _results(content)[0] if _results(content) else content
    arm = first.get("a") if isinstance(first, Mapping) else None
    for part in (content.get("model"), arm.get("model") if isinstance(arm, Mapping) else None):
        if isinstance(part, Mapping) and isinstance(part.get("digest"), str):
            return str(part["digest"])
    return ""


def _results(content: _Content) -> list[_Content]:
    """The comparisons of a document that holds several, or the only one."""
    several = content.get("results")
    return list(several) if isinstance(several, list) else [content]


def _benchmark(content: _Content) -> dict[str, Any]:
    return {"against": content["against"]} if content.get("against") else {}


def _profile(content: _Content) -> dict[str, Any]:
    performance, loss = content.get("performance"), content.get("loss")
    return {
        "performance": {name: performance[name] for name in _PERFORMANCE} if performance else None,
        "loss": {name: loss[name] for name in _LOSS} if loss else None,
        "flops": (content.get("flops") or {}).get("flops"),
        "interrupted": bool(content.get("interrupted")),
        "problems": list(content.get("problems") or ()),
    }


def _comparison(content: _Content) -> dict[str, Any]:
    first = _results(content)[0]
    return {
        "labels": [first["a"]["label"], first["b"]["label"]],
        "results": [{name: one[name] for name in _COMPARISON} for one in _results(content)],
    }


def _version(content: _Content) -> dict[str, Any]:
    recipe, made = content["recipe"], content["optimized"]
    return {
        "name": content["name"],
        "optimized": {name: made[name] for name in _VERSION},
        "pattern": (recipe.get("pruning") or {}).get("pattern", ""),
        "scheme": (recipe.get("quantization") or {}).get("scheme", ""),
        "distance": content["distance"],
        "measured": [{name: one[name] for name in _MEASURED} for one in content["measured"]],
        "interrupted": bool(content.get("interrupted")),
        "problems": list(content.get("problems") or ()),
    }
