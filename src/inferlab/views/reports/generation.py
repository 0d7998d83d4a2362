"""The report of a generation: one page with its numbers, charts, agreement, memory, and how it was measured."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from inferlab.errors import BadInput
from inferlab.measure.stats import engine_version
from inferlab.records import Estimate
from inferlab.records.generation import GenerationSweep
from inferlab.units import capitalized, count, duration, plural, scaled, share, size
from inferlab.views import command
from inferlab.views import generation as view
from inferlab.views.charts import frame
from inferlab.views.charts.points import GenerationPoint, points_of, varying
from inferlab.views.charts.sweeps import generation_scaling, latency_throughput
from inferlab.views.charts.timeline import token_times
from inferlab.views.fields import MS, Field, interval_of, rounded
from inferlab.views.generation import Row
from inferlab.views.reports import page as parts
from inferlab.views.reports.benchmark import (
    began,
    cells_tile,
    each,
    facts,
    of_each,
    process_text,
    verdict,
)
from inferlab.views.reports.page import Element
from inferlab.views.results import short_name
from inferlab.views.tables import Table
from inferlab.views.text import generation_label

# More figures than these in one chart would make a page that opens slowly.
_MOST_FIGURES = 48
_TITLES = {
    "num_cores": "Cores",
    "batch_size": "Batch size",
    "prompt_tokens": "Prompt",
    "new_tokens": "New tokens",
    "depth": "Depth",
}
_PROMPTS = (
    "Prompts are random token ids, new for each repetition and the same for every engine; tokens are chosen "
    "greedily, the end-of-sequence token does not end a sequence, and prefixes are not cached."
)

_NUMBERS = (
    "Each is the typical process's; an interval (95 %) is Student's on what its processes say. TTFT counts from "
    "the submission to the first token of each sequence; TPOT is the mean time of the tokens after it; decode "
    "throughput is these tokens of a whole batch over the time in which they were decoded."
)


def report(sweep: GenerationSweep) -> str:
    """The report of a generation: one self-contained page."""
    drawn, shown, points = parts.Charts(), view.rows(sweep), points_of(sweep)
    sections = {
        "Summary": _one(shown[0]) if len(shown) == 1 else _many(shown),
        "Cells": _cells(shown) if len(shown) > 1 else [],
        "Time per output token by depth": _chart(
            points, drawn, "depth", lambda some: generation_scaling(some, "depth", "tpot_ms")
        ),
        "Time to first token by prompt length": _chart(
            points, drawn, "prompt_tokens", lambda some: generation_scaling(some, "prompt_tokens", "ttft_ms")
        ),
        "Latency and throughput": _chart(points, drawn, "batch_size", latency_throughput),
        "Time per output token by cores": _chart(
            points, drawn, "num_cores", lambda some: generation_scaling(some, "num_cores", "tpot_ms")
        ),
        "Inter-token latency": _tokens(shown, drawn),
        "Agreement": _agreement(shown),
        "Memory and KV cache": _memory(shown),
        "How it was measured": _how(sweep, shown),
    }
    name = short_name(sweep.model.source)
    return parts.page(f"{name}: generation", _head(sweep, name, shown), sections, drawn)


def _head(sweep: GenerationSweep, name: str, shown: Sequence[Row]) -> list[Element | None]:
    model = sweep.model
    runs = [run for row in shown for run in row.outcome.runs]
    below = [
        *(model.architecture, f"{scaled(model.parameters)} parameters", model.precision, size(model.size_bytes)),
        *(f"context {model.context}", f"digest {model.digest[:12]}", began(runs)),
        *dict.fromkeys(run.machine.cpu for run in runs),
        *dict.fromkeys(_engine(row) for row in shown),
    ]
    told = view.notes(shown)
    return [
        parts.heading(name, below),
        parts.box([capitalized(note.text) for note in told if note.warning], wrong=True),
        parts.box([capitalized(note.text) for note in told if not note.warning]),
    ]


def _engine(row: Row) -> str:
    runs = row.outcome.runs
    return f"{row.cell.engine} {engine_version(runs[0]) if runs else ''}".rstrip()


def _one(row: Row) -> list[Element]:
    cell, summary = row.cell, row.summary
    what = parts.tiles(
        parts.tile("Engine", _engine(row), style="words"),
        *(parts.tile(label, str(getattr(cell, name))) for name, label in _TITLES.items()),
    )
    if summary is None:
        return [what, parts.caption("Nothing was measured.")]
    return [
        what,
        parts.tiles(
            _measured("Time to first token (ms)", summary.ttft_ms),
            _measured("Time per output token (ms)", summary.tpot_ms),
            _measured("Decode (tokens/s)", summary.decode_tokens_per_s, count),
            _measured("Prefill (tokens/s)", summary.prefill_tokens_per_s, count),
        ),
        parts.tiles(
            _check_tile(row),
            parts.tile("End to end", f"{MS(summary.end_to_end_ms.value)} ms"),
            *(
                parts.tile(f"Inter-token p{p:g}", f"{MS(value)} ms")
                for p, value in summary.itl_percentiles_ms.items()
                if value is not None and p in (50.0, 90.0, 99.0)
            ),
            parts.tile("Load", duration(summary.load_s.value), _first(row)),
            parts.tile("Measured", plural(summary.sequences, "sequence"), f"in {process_text([row.outcome])}"),
        ),
    ]


def _measured(label: str, value: Estimate | None, form: Callable[[float], str] | None = None) -> Element:
    more = {} if form is None else {"form": form}
    if value is None:
        return parts.tile(label, "–", "fewer than two tokens", "main")
    return parts.measured_tile(label, value.value, value.ends, **more)


def _first(row: Row) -> str:
    assert row.summary is not None
    return f"first generation {duration(row.summary.first_generation_ms.value / 1e3)}"


def _check_tile(row: Row) -> Element:
    found = row.agreement
    if found is None or found.top1 is None:
        return parts.tile("Agreement", "unchecked", found.detail if found else "", "words")
    value = f"{'WRONG, ' if found.status == 'mismatch' else ''}{share(found.top1)}"
    return parts.tile("Agreement", value, f"{found.agreeing} of {found.positions} tokens", "words")


def _many(shown: Sequence[Row]) -> list[Element]:
    """The best of each number, of cells whose tokens are right."""
    right = [
        row for row in shown if row.summary is not None and row.outcome.status == "done" and not _is_wrong(row)
    ]
    checks = [row.agreement.status for row in shown if row.agreement]
    tiles = [
        cells_tile([row.outcome.status for row in shown]),
        parts.tile("Tokens", verdict(sum(map(_is_wrong, shown)), checks), style="words"),
    ]
    if not right:
        return [parts.tiles(*tiles), parts.caption("No cell was measured to its end with tokens that are right.")]
    names = dict(zip((row.cell.id for row in shown), view.short_labels([row.cell for row in shown]), strict=True))
    best = []
    for label, name, sign, form in (
        ("Lowest time to first token (ms)", "ttft_ms", 1, None),
        ("Lowest time per output token (ms)", "tpot_ms", 1, None),
        ("Highest decode throughput (tokens/s)", "decode_tokens_per_s", -1, count),
    ):
        known = [(sign * value.value, row) for row in right if (value := getattr(row.summary, name)) is not None]
        if known:
            row = min(known, key=lambda pair: pair[0])[1]
            value = getattr(row.summary, name)
            text = rounded(value.value, value.ends, form or MS)
            best.append(parts.tile(label, text, names[row.cell.id], "main"))
    return [
        parts.tiles(*best, *tiles),
        parts.caption(
            "Cells were measured in random order, not interleaved; cells of different precision are not the same "
            "model. Numbers of cells whose tokens are wrong are left out here."
        ),
    ]


def _is_wrong(row: Row) -> bool:
    return row.agreement is not None and row.agreement.status == "mismatch"


def _cells(shown: Sequence[Row]) -> list[Element]:
    """The table of all cells, with both ends of the intervals that matter most."""
    cells = [row.cell for row in shown]
    numbers = {row.cell.id: number for number, row in enumerate(shown, 1)}
    several = {name for name in _TITLES if len({getattr(cell, name) for cell in cells}) > 1}
    columns = [
        Field("", "#", lambda row: numbers[row.cell.id]),
        Field("", "Engine", lambda row: row.cell.engine, left=True),
        *(replace(field, label=_TITLES[field.key]) for field in view.FIELDS if field.key in several),
        *(view.TTFT.aligned("TTFT (ms)"), interval_of(view.TTFT, "TTFT, 95\u00a0%")),
        *(view.TPOT.aligned("TPOT (ms)"), interval_of(view.TPOT, "TPOT, 95\u00a0%")),
        view.DECODE.aligned("Decode (tok/s)"),
        view.PREFILL.aligned("Prefill (tok/s)"),
        view.END_TO_END.aligned("Whole (ms)"),
        _TOKENS,
    ]
    if any(row.outcome.status != "done" for row in shown):
        columns.append(Field("", "Status", _status, left=True))
    same = [f"{label} {getattr(cells[0], name)}" for name, label in _TITLES.items() if name not in several]
    return [
        *([parts.caption(f"In all cells: {', '.join(same)}.")] if same else []),
        parts.sortable("all-cells", Table(columns, shown), parts.MISSING),
    ]


def _status(row: Row) -> parts.Cell:
    return parts.Cell(row.outcome.status, wrong=row.outcome.status == "failed")


def _tokens_cell(row: Row) -> parts.Cell | None:
    found = row.agreement
    if found is None:
        return None
    if found.top1 is None:
        return parts.Cell("unchecked")
    return parts.Cell(
        f"{'WRONG, ' if _is_wrong(row) else ''}{share(found.top1)}", found.top1, wrong=_is_wrong(row)
    )


_TOKENS = Field("", "Tokens", _tokens_cell, left=True)


def _chart(
    points: Sequence[GenerationPoint],
    drawn: parts.Charts,
    axis: str,
    draw: Callable[[Sequence[GenerationPoint]], Any],
) -> list[Element]:
    """A chart along an axis, with selectors for what else varies; nothing where the axis has one value."""
    several = varying(points)
    if axis not in several:
        return []
    others = {name: values for name, values in several.items() if name != axis and name in _TITLES}
    while others and math.prod(map(len, others.values())) > _MOST_FIGURES:
        # What has the most values is drawn as lines instead.
        others.pop(max(others, key=lambda name: len(others[name])))
    figures = {}
    for choice in itertools.product(*others.values()):
        chosen = dict(zip(others, choice, strict=True))
        some = [point for point in points if all(getattr(point, name) == value for name, value in chosen.items())]
        try:
            figure = draw(some)
        except BadInput:
            # Nothing of this was measured.
            continue
        figures["|".join(map(str, choice))] = frame.compact(
            figure, figure.layout.height - figure.layout.margin.t + 30
        )
    if not figures:
        return []
    choices = {_TITLES[name]: {str(value): str(value) for value in values} for name, values in others.items()}
    return [
        parts.caption("Bars are 95 % intervals; the best line whose tokens are right is in colour."),
        *([parts.selectors(axis, choices)] if choices else []),
        drawn.add(axis, figures),
    ]


def _tokens(shown: Sequence[Row], drawn: parts.Charts) -> list[Element]:
    """The gaps between the tokens of a cell, along its sequence."""
    figures = {}
    for number, row in enumerate(shown, 1):
        try:
            figure = token_times([(generation_label(row.cell), row.outcome)])
        except BadInput:
            continue
        figures[str(number)] = frame.compact(figure, 320)
    if not figures:
        return []
    said = parts.caption("The median gap before each token; four of five sequences lie in the shade.")
    return [said, *of_each("tokens", figures, [generation_label(row.cell) for row in shown], drawn)]


def _agreement(shown: Sequence[Row]) -> list[Element]:
    """How the tokens of each cell compare with the reference's."""
    checked = [row for row in shown if row.agreement is not None]
    if not any(row.agreement and row.agreement.positions for row in checked):
        return [parts.caption("The tokens were not compared with a reference.")] if checked else []

    def counted(label: str, name: str, of: str) -> Field:
        def get(row: Row) -> parts.Cell:
            part = getattr(row.agreement, name)
            return parts.Cell(f"{part} of {getattr(row.agreement, of)}", part)

        return Field("", label, get)

    columns = [
        *(_named(checked), _TOKENS, counted("Forced positions that agree", "agreeing", "positions")),
        Field("", "Close choices", lambda row: row.agreement.ties),
        counted("Free-running prefix", "prefix", "prefix_of"),
        Field("", "KL divergence, nats", lambda row: row.agreement.kl_divergence, "{:.2g}".format),
        Field("", "Reference", lambda row: row.agreement.reference or row.agreement.detail, left=True),
    ]
    return [
        parts.caption(
            "Forced: given the reference's own tokens, the engine chooses the same next one. Free: tokens of a "
            "generation of its own, until the first that differs."
        ),
        parts.sortable("agreement", Table(columns, checked), parts.MISSING),
    ]


def _memory(shown: Sequence[Row]) -> list[Element]:
    """What the process took, and the cache of keys and values told in three ways."""
    measured_rows = [row for row in shown if row.outcome.runs]
    if not measured_rows:
        return []

    def cache(label: str, name: str) -> Field:
        return Field("", label, lambda row: getattr(row.outcome.runs[0].cache, name), size)

    def memory(name: str, label: str) -> Field:
        return Field("", capitalized(label), lambda row: view.most(row, name), size)

    columns = [
        _named(measured_rows),
        *(memory(name, label) for name, label in view.MEMORY.items()),
        *(cache("KV per token by formula", "formula_bytes"), cache("by the engine", "engine_bytes")),
        cache("measured", "measured_bytes"),
        Field("", "Type", lambda row: row.outcome.runs[0].cache.dtype or None, left=True),
    ]
    return [parts.sortable("memory", Table(columns, measured_rows), parts.MISSING)]


def _named(rows: Sequence[Row]) -> Field:
    """The column of cells, by what tells them apart."""
    cells = [row.cell for row in rows]
    labels = view.short_labels(cells) if len(cells) > 1 else [""]
    names = {cell.id: label or generation_label(cell) for cell, label in zip(cells, labels, strict=True)}
    return Field("", "Cell", lambda row: names[row.cell.id], left=True)


def _how(sweep: GenerationSweep, shown: Sequence[Row]) -> list[Element]:
    plan, model = sweep.plan, sweep.model
    processes = process_text(sweep.outcomes)
    types = ", ".join(f"{group.type} {scaled(group.parameters)}" for group in model.tensors)
    own = {
        "Architecture": view.architecture_text(model),
        "Parameters": f"{scaled(model.parameters)} ({types}), {size(model.size_bytes)}",
        "Each cell": f"{duration(plan.time_s)} in all{processes and f' in {processes}'}",
        "Tokens": _PROMPTS,
        "Numbers": _NUMBERS,
        "Pinning": plan.thread_pinning,
        "Settings": each((_settings(row) for row in shown if row.outcome.runs), "; "),
    }
    return facts(sweep, command.generation, own)


def _settings(row: Row) -> str:
    told = row.outcome.runs[0].settings
    return f"{row.cell.engine}: " + ", ".join(f"{name} {value}" for name, value in told.items())
