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
from inferlab.records import Comparison, ComparisonSweep
from inferlab.store.entries import Document, Stored
from inferlab.store.formats import record_of
from inferlab.store.record_files import PROFILES
from inferlab.store.store import Store
from inferlab.views import files, flat, profile_report, stored

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
    if found.kind == "comparison":
        models = next((one.models for one in _sweep(found).results if one.models), None)
        return models[0].source if models else found.title
    return found.title


def _benchmark(found: Stored, ending: str) -> str:
    if ending == "csv":
        return flat.to_csv(flat.rows(found.benchmark))
    if ending == "json":
        return files.to_json(found.benchmark)
    from inferlab.views import benchmark_report  # late: it draws charts

    return benchmark_report.report(found.benchmark)


def _document(found: Document, ending: str) -> str:
    if ending == "json":
        return stored.to_json(found)
    if found.kind == "profile":
        profile = PROFILES.from_content(found.content, found.id)
        return profile_report.report(profile) if ending == "html" else _csv(ProfileResult(profile).rows())
    if found.kind == "comparison":
        sweep = _sweep(found)
        if ending == "csv":
            return _csv(map(_row, sweep.results))
        from inferlab.views import comparison_html  # late: it draws charts

        return comparison_html.report(found.title, sweep)
    raise BadInput(f"A {found.kind} is exported as json, not as {ending}.")


def _sweep(found: Document) -> ComparisonSweep:
    record = record_of(found)
    assert isinstance(record, ComparisonSweep)
    return record


def _row(comparison: Comparison) -> dict[str, Any]:
    """A comparison as a row of a table."""
    cell = comparison.cells[0] if comparison.cells else None
    return {
        "a": comparison.labels[0],
        "b": comparison.labels[1],
        **{name: getattr(cell, name, None) for name in ("num_cores", "batch_size", "scenario")},
        "ratio": comparison.ratio.value,
        "low": comparison.ratio.low,
        "high": comparison.ratio.high,
        "level": comparison.ratio.level,
        "verdict": comparison.verdict,
        "margin": comparison.margin,
        "paired": bool(comparison.pairs),
        "pairs": len(comparison.pairs),
        "seconds": comparison.seconds,
        "outputs_match": comparison.outputs_match,
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
