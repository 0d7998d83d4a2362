"""Entries as files that a browser saves."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from inferlab.errors import BadInput
from inferlab.profile_result import ProfileResult
from inferlab.store.briefs import results
from inferlab.store.entries import Document, Stored
from inferlab.store.store import Store
from inferlab.views import files, flat, profile_files, profile_html, stored

_TYPES = {"json": "application/json", "csv": "text/csv", "html": "text/html"}


@dataclass(frozen=True, slots=True)
class Export:
    """A file to be saved."""

    name: str
    media_type: str
    text: str


def export(store: Store, entry_id: str, ending: str) -> Export:
    """An entry as JSON, CSV or HTML."""
    if ending not in _TYPES:
        raise BadInput(f"An entry is exported as {', '.join(_TYPES)}, not as {ending!r}.")
    found = store.get(entry_id)
    text = _benchmark(found, ending) if isinstance(found, Stored) else _document(found, ending)
    about = found.benchmark.model.source if isinstance(found, Stored) else _about(found)
    return Export(f"{_slug(about)}-{found.id}.{ending}", _TYPES[ending], text)


def _about(found: Document) -> str:
    """What a document is of: the model where it names one."""
    compared = results(found.content) if found.kind == "comparison" else ()
    return str(compared[0]["a"]["model"]["source"]) if compared and "model" in compared[0]["a"] else found.title


def _benchmark(found: Stored, ending: str) -> str:
    if ending == "csv":
        return flat.to_csv(flat.rows(found.benchmark))
    if ending == "json":
        return files.to_json(found.benchmark)
    from inferlab.views import benchmark_html  # late: it draws charts

    return benchmark_html.report(found.benchmark)


def _document(found: Document, ending: str) -> str:
    if ending == "json":
        return stored.to_json(found)
    if found.kind == "profile":
        profile = profile_files.from_content(found.content, found.id)
        return profile_html.report(profile) if ending == "html" else _csv(ProfileResult(profile).rows())
    if found.kind == "comparison":
        if ending == "csv":
            return _csv(map(_row, results(found.content)))
        from inferlab.views import comparison_html  # late: it draws charts

        return comparison_html.report(found.title, results(found.content), found.content.get("failures", ()))
    raise BadInput(f"A {found.kind} is exported as json, not as {ending}.")


def _row(one: Mapping[str, Any]) -> dict[str, Any]:
    """A comparison as a row of a table."""
    low, high = one["interval"] or (None, None)
    cell = one["a"].get("cell") or {}
    return {
        "a": one["a"]["label"],
        "b": one["b"]["label"],
        **{name: cell.get(name) for name in ("num_cores", "batch_size", "scenario")},
        "ratio": one["ratio"],
        "low": low,
        "high": high,
        "level": one["level"],
        **{name: one[name] for name in ("verdict", "margin", "paired", "pairs", "seconds", "outputs_match")},
    }


def _csv(rows: Iterable[Mapping[str, Any]]) -> str:
    listed = list(rows)
    names = list(dict.fromkeys(name for row in listed for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: flat.spreadsheet_cell(_plain(value)) for name, value in row.items()} for row in listed)
    return text.getvalue()


def _plain(value: Any) -> Any:
    return " ".join(map(str, value)) if isinstance(value, list | tuple) else value


def _slug(text: str) -> str:
    last = re.split(r"[/\\:]", text)[-1]
    return re.sub(r"[^A-Za-z0-9._-]+", "-", last).strip("-.")[:60] or "inferlab"
