"""The history as a table, an entry a line, and as JSON; it imports nothing heavy, because it must be quick."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from inferlab.measure.stats import statistic
from inferlab.store.entries import CellEntry, Entry, Heading
from inferlab.units import count, duration, one_line, shortened
from inferlab.views import tables
from inferlab.views.fields import CELL, half_width, useful

# Version 1: the first.
FORMAT = "inferlab-history/1"

_HEADS = ("Id", "When", "Kind", "Model", "Engines", "Cores", "Batch", "Best", "Status", "Labels", "Note")
# What may be shortened: to this length always, and down to that one where the terminal is narrow.
_LONGEST = {"Model": 40, "Engines": 24, "Labels": 40, "Note": 40}
_SHORTEST = {"Model": 12, "Engines": 8, "Labels": 12, "Note": 12}
# What a narrow terminal can do without, the first first.
_EXPENDABLE = ("Labels", "Note", "Kind", "Batch", "Cores")
# So many characters of a commit tell it from others.
_COMMIT = 10
_AGES = ((60, 1, "s"), (90 * 60, 60, "min"), (36 * 3600, 3600, "h"), (31 * 86400, 86400, "d"))


#: What a cell is called that was measured to its end and computes something else.
WRONG = "wrong outputs"

_Row = dict[str, str]


def lines(entries: Sequence[Entry], now: datetime, width: int | None = None) -> list[str]:
    """The table, made to fit a terminal of so many columns."""
    texts = [_HEADS, *(_row(entry, now) for entry in entries)]
    rows = [dict(zip(_HEADS, text, strict=True)) for text in texts]
    rows = _without(rows, [head for head in ("Labels", "Note") if not any(row[head] for row in rows[1:])])
    for head, longest in _LONGEST.items():
        rows = _cut(rows, head, longest)
    if width is not None:
        rows = _fitted(rows, width)
    left = [index for index, head in enumerate(rows[0]) if head not in ("Cores", "Batch", "Best")]
    return tables.aligned([list(row.values()) for row in rows], left)


def _row(entry: Entry, now: datetime) -> tuple[str, ...]:
    cells = [cell.cell for cell in entry.cells]
    # A generation has cells of its own kind, of which its brief tells.
    engines, cores, batches = (entry.brief.get(name, ()) for name in ("engine", "num_cores", "batch_size"))
    return (
        entry.id,
        age(entry.created_at, now),
        clean(entry.kind),
        clean(entry.title),
        clean(", ".join(engines or dict.fromkeys(cell.engine for cell in cells))) or "-",
        _numbers(cores or (cell.num_cores for cell in cells)),
        _numbers(batches or (cell.batch_size for cell in cells)),
        _fastest(entry) or best(entry.cells),
        status([WRONG if wrong and state == "done" else state for state, wrong in _states(entry)]),
        label_text(entry.labels),
        clean(entry.note),
    )


def label_text(labels: Mapping[str, str]) -> str:
    """Labels on one line; of a commit its first characters."""
    cleaned = {name: clean(text) for name, text in labels.items()}
    return ", ".join(f"{name} {text[:_COMMIT] if name == 'commit' else text}" for name, text in cleaned.items())


def _fastest(entry: Entry) -> str:
    """The lowest time per output token of a generation, of cells whose tokens are right; empty of all else."""
    times, wrong = entry.brief.get("tpot_ms", ()), entry.brief.get("wrong", ())
    right = [ms for ms, bad in zip(times, wrong, strict=False) if _finite(ms) and not bad]
    return f"TPOT {duration(min(right) / 1e3)}" if right else ""


def _states(entry: Entry) -> list[tuple[str, bool]]:
    """What became of each cell, and whether it computes something else."""
    if "statuses" in entry.brief:
        return list(zip(entry.brief["statuses"], entry.brief["wrong"], strict=False))
    return [(cell.status, cell.wrong) for cell in entry.cells]


def _without(rows: list[_Row], heads: Sequence[str]) -> list[_Row]:
    return [{head: text for head, text in row.items() if head not in heads} for row in rows]


def _cut(rows: list[_Row], head: str, length: int) -> list[_Row]:
    return [{**row, head: shortened(row[head], length)} if head in row else row for row in rows]


def _fitted(rows: list[_Row], width: int) -> list[_Row]:
    """What fits: long texts are shortened, and where that is not enough, what matters least is left out."""
    fitted = rows
    for out in range(len(_EXPENDABLE) + 1):
        fitted = _squeezed(_without(rows, _EXPENDABLE[:out]), width)
        if _width(fitted) <= width:
            break
    return fitted


def _squeezed(rows: list[_Row], width: int) -> list[_Row]:
    while _width(rows) > width:
        lengths = {head: _length(rows, head) for head in _SHORTEST if head in rows[0]}
        left = {head: length for head, length in lengths.items() if length > _SHORTEST[head]}
        if not left:
            break
        longest = max(left, key=lambda head: left[head])
        # One by one, so that two long columns end up alike.
        rows = _cut(rows, longest, left[longest] - 1)
    return rows


def _length(rows: list[_Row], head: str) -> int:
    return max(tables.cell_width(row[head]) for row in rows)


def _width(rows: list[_Row]) -> int:
    return sum(_length(rows, head) + 2 for head in rows[0]) - 2


def age(then: datetime, now: datetime) -> str:
    """How long ago it was, or the date where that is more than a month."""
    # Clocks of other machines may be ahead of ours.
    seconds = max((now - then).total_seconds(), 0.0)
    for limit, unit_s, unit in _AGES:
        if seconds < limit:
            return f"{seconds // unit_s:.0f} {unit} ago"
    return f"{then.astimezone():%Y-%m-%d}"


def clean(text: str) -> str:
    """Text on one line, without what a terminal would obey."""
    return one_line(text.strip())


def _numbers(values: Iterable[int]) -> str:
    ordered = sorted(set(values))
    if len(ordered) > 4:
        return f"{ordered[0]}…{ordered[-1]}"
    return ",".join(map(str, ordered)) or "-"


def best(cells: Sequence[CellEntry]) -> str:
    """The cell of the lowest time per item, as its median or its throughput; wrong ones are out."""
    usable = [cell for cell in cells if _finite(cell.items_per_sec) and _finite(cell.median_ms) and not cell.wrong]
    sound = [cell for cell in usable if cell.status == "done"] or usable
    if not sound:
        return "-"
    fastest = min(sound, key=lambda cell: cell.ms_per_item)
    if all(statistic(cell.cell.scenario) == "median" for cell in sound):
        half = _half(fastest.median_ms_low, fastest.median_ms_high)
        per_item = " per item" if any(cell.cell.batch_size > 1 for cell in sound) else ""
        return f"median {duration(fastest.ms_per_item / 1e3)}{per_item}{half}"
    half = _half(fastest.items_per_sec_low, fastest.items_per_sec_high)
    return f"{count(fastest.items_per_sec or 0.0)} items/s{half}"


def _finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _half(low: float | None, high: float | None) -> str:
    ends = None if low is None or high is None or not low > 0 else (low, high)
    if ends is None or useful(ends):
        return f" ±{half_width(ends)}" if ends else ""
    return ", too noisy"


def status(words: Sequence[str]) -> str:
    """What became of cells of which each is done, failed, …: "done", or how many of them are not."""
    counts = Counter(words)
    left = [word for word in ("failed", WRONG, "cancelled", "pending") if counts[word]]
    if not left:
        return "done"
    if len(words) == 1:
        return left[0]
    return ", ".join(f"{word} {counts[word]}" for word in left) + f" of {len(words)}"


def heading(entry: Heading) -> str:
    """An entry in a few words."""
    return f"{entry.id} ({clean(entry.kind)}, {shortened(clean(entry.title), 60)}, {moment(entry.created_at)})"


def moment(then: datetime) -> str:
    """A moment on the clock of this machine."""
    return f"{then.astimezone():%Y-%m-%d %H:%M:%S %z}"


def to_json(entries: Sequence[Entry], older: str | None) -> str:
    """A page of the history; `before` is the id that gives the next page, or null where this is the last."""
    content = {"format": FORMAT, "entries": [_entry(entry) for entry in entries], "before": older}
    return json.dumps(content, indent=2, allow_nan=False)


def _entry(entry: Entry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "created_at": entry.created_at.isoformat(),
        "kind": entry.kind,
        "title": entry.title,
        "model_digest": entry.model_digest or None,
        "inferlab_version": entry.inferlab_version,
        "node": entry.node,
        "note": entry.note,
        "labels": dict(entry.labels),
        "status": entry.status,
        "cells": [_cell(cell) for cell in entry.cells],
        **({"generation": dict(entry.brief)} if entry.kind == "generation" else {}),
    }


def _cell(line: CellEntry) -> dict[str, Any]:
    cell = line.cell
    return {
        "cell": line.cell_id,
        **{field.key: getattr(cell, field.key) for field in CELL if not field.key.startswith("machine")},
        "rate": _plain(cell.rate),
        "engine_options": dict(cell.engine_options),
        "status": line.status,
        "failure": None if line.failure is None else {"code": line.failure.code, "message": line.failure.message},
        "wrong_outputs": line.wrong,
        "engine_version": line.engine_version,
        "machine": line.machine,
        "peak_memory_bytes": _plain(line.peak_memory_bytes),
        "processes": line.runs,
        "items_per_sec": _plain(line.items_per_sec),
        "items_per_sec_interval": _interval(line.items_per_sec_low, line.items_per_sec_high),
        "median_ms": _plain(line.median_ms),
        "median_ms_interval": _interval(line.median_ms_low, line.median_ms_high),
    }


def _plain(value: float | None) -> float | None:
    return value if _finite(value) else None


def _interval(low: float | None, high: float | None) -> list[float] | None:
    return None if low is None or high is None or not (_finite(low) and _finite(high)) else [low, high]
